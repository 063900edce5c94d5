"""Everything durable: objects, commit log, checkpoint protocol, selection, ledger and history."""
