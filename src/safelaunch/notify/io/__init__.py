"""Messages sent: mail, webhooks, programs, plugins."""
