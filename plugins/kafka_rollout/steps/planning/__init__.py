"""Plans: observe, collect findings, freeze, check again."""
