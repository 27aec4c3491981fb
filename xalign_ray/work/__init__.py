"""The making of folders: what every verb that writes one goes through."""
