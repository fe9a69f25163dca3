"""The fold: events of one stream → its state, pure and total; and the table that says what may follow what."""
