"""Gates as deferrable tasks."""
