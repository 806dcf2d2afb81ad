"""A verdict as text, as JSON, as a ticket, with the help pages of its categories."""
