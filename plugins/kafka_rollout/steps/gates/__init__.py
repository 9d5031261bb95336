"""Gates: observe, check, wait."""
