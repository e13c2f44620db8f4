/* Reads NAME=NUMBER. */
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_number(const char *program, const number *table, int n, const char *word, double *x)
{
    static const char *const kinds[] = {"number", "whole number", "even number"};
    const size_t length = strcspn(word, "=");
    int i = 0;
    char *end;
    while (i < n && (strlen(table[i].name) != length || strncmp(table[i].name, word, length) != 0))
        i++;
    if (i == n || !word[length]) {
        fprintf(stderr, "%s: '%s' is no option; see --help\n", program, word);
        return 2;
    }
    const char *text = word + length + 1;
    const double value = strtod(text, &end), step = table[i].step;
    if (end != text && !*end && value >= table[i].least && value <= table[i].most &&
        (step == 0 || fmod(value, step) == 0)) {
        x[i] = value;
        return 0;
    }
    fprintf(stderr, "%s: %s: %s %s from %.10g to %.10g is required\n", program, word,
            step == 2 ? "an" : "a", kinds[(int)step], table[i].least, table[i].most);
    return 2;
}

int read_numbers(const char *program, const number *table, int n, int n_words, char **words,
                 double *x)
{
    int wrong = 0;
    for (int i = 0; i < n; i++)
        x[i] = table[i].without;
    for (int i = 0; i < n_words && !wrong; i++)
        wrong = read_number(program, table, n, words[i], x);
    return wrong;
}
