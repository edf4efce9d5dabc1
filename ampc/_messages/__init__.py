"""What messages need: the script's line, the names of parameters, checks of arguments, tables and progress."""
