"""What every part of the status is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from rljob.api import forms
from rljob.api.base import Model

Message = Annotated[str, Field(max_length=2048)]
Word = Annotated[str, Field(max_length=128, pattern=forms.REASON_WORD.pattern)]


class StatusModel(Model):
    """Part of the status. Fields of another operator version are ignored, so that an upgrade can be rolled back."""

    model_config = ConfigDict(extra="ignore")
