"""Where the time of a start goes: processes, imports and processor time until the first step."""
