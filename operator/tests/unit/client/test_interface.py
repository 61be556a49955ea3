"""The public interface of the client: names, signatures, exceptions. A change of interface.txt is one for users."""

from __future__ import annotations

import inspect
from pathlib import Path

import rljob.client
from rljob.client import AsyncClient, Client, errors
from scripts.client_reference import signatures

INTERFACE = Path(__file__).with_name("interface.txt")


def test_the_interface_is_as_it_was_published() -> None:
    assert signatures() == INTERFACE.read_text().splitlines()


def test_everything_of_the_interface_is_exported_and_belongs_to_it() -> None:
    assert sorted(rljob.client.__all__, key=str.lower) == [
        *("AlreadyExists", "AsyncClient", "Client", "ConfigurationError", "Conflict", "Deleted", "EventType"),
        *("Forbidden", "Invalid", "Job", "JobEnded", "JobEvent", "JobFailed", "LogRole", "NotAvailable", "NotFound"),
        *("NotInstalled", "OutcomeUnknown", "RLJobError", "RLJobSpec", "RLJobStatus", "RLJobWarning", "Row", "Rows"),
        *("State", "Timeout", "Unauthorized", "Unreachable", "Until", "Validated", "Violation"),
    ]
    assert all(hasattr(rljob.client, name) for name in rljob.client.__all__)


def test_every_exception_is_exported_and_drawn_in_the_tree() -> None:
    tree = errors.__doc__ or ""
    found = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)}
    assert found <= set(rljob.client.__all__)
    assert [name for name in found if name not in tree] == []


def test_both_clients_have_the_same_methods_and_documentation() -> None:
    methods = {name for name in vars(AsyncClient) if not name.startswith("_")} - {"aclose"}
    assert methods == {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert [name for name in methods if not (getattr(Client, name).__doc__ or "").strip()] == []
    assert [name for name in methods if getattr(Client, name).__doc__ != getattr(AsyncClient, name).__doc__] == []
