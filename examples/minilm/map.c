/* Draws the attention of one layer as an SVG picture. */
#include "map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* In pixels: the cells in the panel of the mean and in those of the heads, gaps and titles. ACROSS
 * is how many panels lie side by side. */
enum { CELL = 18, SMALL_CELL = 10, ACROSS = 4, GAP = 16, TITLE = 22 };

/* Prints the text of a token: characters with a meaning in XML are escaped, those that it does not
 * allow become '?'. */
static void print_token(FILE *out, const model *m, int32_t id)
{
    size_t bytes;
    const utf8proc_uint8_t *at =
        (const utf8proc_uint8_t *)tokenizer_token(m->tokenizer, id, &bytes);
    for (const utf8proc_uint8_t *end = at + bytes; at < end;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate(at, end - at, &c);
        if (n <= 0 || c < ' ' || (c & 0xfffe) == 0xfffe)
            fputc('?', out);
        else if (strchr("<>&\"", c) && c < 0x80)
            fprintf(out, "&#%d;", (int)c);
        else
            fwrite(at, 1, (size_t)n, out);
        at += n > 0 ? n : 1;
    }
}

/* The height of letters is 2/3 of a cell, their width 3/5 of that. */
static double letter_size(int cell)
{
    return cell * 2 / 3.0;
}

/* The room that the longest label needs. */
static int label_width(const model *m, const batch *b, int cell)
{
    size_t longest = 0;
    for (int32_t i = 0; i < b->rows; i++) {
        size_t bytes;
        tokenizer_token(m->tokenizer, b->ids[i], &bytes);
        if (bytes < 40 && bytes > longest)
            longest = bytes;
    }
    return (int)((double)longest * 0.6 * letter_size(cell)) + GAP;
}

/* Prints the tokens down the left side and, rotated, along the top. The origin is the corner of the
 * first cell. */
static void print_labels(FILE *out, const model *m, const batch *b, int cell)
{
    for (int32_t i = 0; i < b->rows; i++) {
        double line = i * cell + 0.72 * cell;
        fprintf(out, "<text x='-4' y='%.1f' text-anchor='end'>", line);
        print_token(out, m, b->ids[i]);
        fprintf(out, "</text>\n<text transform='translate(%.1f,-4) rotate(-90)'>", line);
        print_token(out, m, b->ids[i]);
        fputs("</text>\n", out);
    }
}

/* The place of a panel's first cell, and the size of its cells. */
typedef struct panel {
    const char *title;
    int x, y, cell;
} panel;

/* Prints a panel with the mean of the weights of `heads` heads. */
static void print_panel(FILE *out, const panel *p, const model *m, const batch *b,
                        const float *weights, int64_t heads)
{
    int n = b->rows, cell = p->cell, label = label_width(m, b, cell);
    fprintf(out, "<g transform='translate(%d,%d)' font-size='%.1f'>\n", p->x, p->y,
            letter_size(cell));
    fprintf(out, "<text x='%d' y='%d' font-size='11'>%s</text>\n", -label, -label, p->title);
    print_labels(out, m, b, cell);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float w = 0;
            for (int64_t h = 0; h < heads; h++)
                w += weights[(h * n + i) * n + j] / (float)heads;
            if (w >= 0.004f) /* less would look like the background */
                fprintf(out, "<rect x='%d' y='%d' width='%d' height='%d' fill-opacity='%.2f'/>\n",
                        j * cell, i * cell, cell, cell, (double)w);
        }
    fprintf(out, "<rect width='%d' height='%d' class='frame'/>\n</g>\n", n * cell, n * cell);
}

static void print_map(FILE *out, const model *m, const batch *b, int64_t layer,
                      const float *weights)
{
    int n = b->rows, heads = (int)m->heads, down = (heads + ACROSS - 1) / ACROSS;
    int label = label_width(m, b, CELL), small_label = label_width(m, b, SMALL_CELL);
    int small = small_label + n * SMALL_CELL + GAP; /* the distance of panels, across and down */
    int below = TITLE + label + n * CELL + GAP + TITLE, width = label + n * CELL + 2 * GAP;
    char title[64];
    if (width < GAP + ACROSS * small)
        width = GAP + ACROSS * small;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='monospace'>\n<style>rect { fill: #08306b } .frame { fill: none; stroke: "
            "#999 } .ground { fill: white }</style>\n<rect width='100%%' height='100%%' "
            "class='ground'/>\n",
            width, below + down * (small + TITLE));
    snprintf(title, sizeof title, "layer %d, mean of %d heads", (int)layer + 1, heads);
    print_panel(out, &(panel){title, GAP + label, TITLE + label, CELL}, m, b, weights, heads);
    for (int h = 0; h < heads; h++) {
        snprintf(title, sizeof title, "head %d", h + 1);
        print_panel(out,
                    &(panel){title, GAP + small_label + h % ACROSS * small,
                             below + small_label + h / ACROSS * (small + TITLE), SMALL_CELL},
                    m, b, weights + (int64_t)h * n * n, 1);
    }
    fputs("</svg>\n", out);
}

heed_status map_write(const char *path, const model *m, const batch *b, int64_t layer,
                      const float *weights, heed_error *why)
{
    FILE *stream = fopen(path, "wb");
    if (stream)
        print_map(stream, m, b, layer, weights);
    int bad = !stream || ferror(stream), number = errno;
    if (stream && fclose(stream) != 0 && !bad) {
        bad = 1;
        number = errno;
    }
    return bad ? refuse(why, "%.160s cannot be written: %s", path, strerror(number)) : HEED_OK;
}
