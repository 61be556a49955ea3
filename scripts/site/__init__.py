"""The site: pages of docs/ and what they link to, built by MkDocs; translations; command blocks; comparison with peers."""
