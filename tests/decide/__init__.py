"""Every rule of the decisions, as tables: just inside its bound, and just past it."""
