"""What programs share whose arguments are nothing but words: their text says how they are called."""

import sys


def words(text, least, most=None):
    """The arguments of the program, least to most of them (None: any number). After --help, or another
    number of them, or an option, prints the text and ends the program."""
    given = sys.argv[1:]
    asked = given in (["-h"], ["--help"])
    fits = len(given) >= least and (most is None or len(given) <= most)
    if asked or not fits or any(word.startswith("-") for word in given):
        print(text.strip(), file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    return given
