/* Arguments NAME=NUMBER of the programs over threads. */
#ifndef HEED_NODES_NUMBERS_H
#define HEED_NODES_NUMBERS_H

/** A number: what it is without an argument, the smallest and the largest that may be given, and
 * what it has to be a multiple of (0: it may be any fraction). */
typedef struct number {
    const char *name;
    double without, least, most, step;
} number;

/** Sets all n numbers, x[i] for table[i], from words that are each NAME=NUMBER. Returns 0, or 2
 * after a line on stderr that begins with the program's name. */
int read_numbers(const char *program, const number *table, int n, int n_words, char **words,
                 double *x);

#endif
