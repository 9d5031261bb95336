"""Outside: Maven repositories, the folder of downloaded jars."""
