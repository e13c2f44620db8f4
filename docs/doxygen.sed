# What the public headers' comments mean to Doxygen. A line that begins with a word and two spaces is a
# paragraph with that heading (Errors, Threads, Source), or, where the word is a parameter's name, an
# entry of a list.
s/^ \* ([A-Z][a-z]+(, [A-Z][a-z]+)*) {2,}/ * @par \1\n * /
s/^ \* ([a-z_]+(, [a-z_]+)*) {2,}/ * - `\1` /
