/* BERT's tokenizer. Its steps are special tokens, clean-up, words and word pieces. */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Longer words are unknown, as in the original. */
enum { MOST_LETTERS = 100 };

enum { CLS, SEP, UNK, PAD, MASK, N_SPECIALS };
static const char *const special_text[N_SPECIALS] = {"[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"};

typedef struct token {
    const char *text;
    size_t bytes;
    int32_t id;
} token;

struct tokenizer {
    int32_t n;
    token *by_id;
    token *by_text; /* sorted, for bsearch, which no vocabulary can make slow */
    size_t longest;
    int32_t special[N_SPECIALS]; /* their ids; -1: not in the vocabulary */
};

/* ---- the vocabulary -------------------------------------------------------------------------- */

/* Orders by bytes, then by length; equal texts by id, so that the order is the same everywhere. */
static int compare_text(const token *a, const token *b)
{
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_tokens(const void *left, const void *right)
{
    const token *a = left, *b = right;
    int order = compare_text(a, b);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

static int compare_key(const void *key, const void *element)
{
    return compare_text(key, element);
}

/* The id of a text; -1 if it is no token. */
static int32_t find(const tokenizer *t, const char *text, size_t bytes)
{
    const token key = {text, bytes, 0};
    const token *found = bytes > t->longest
                             ? NULL
                             : bsearch(&key, t->by_text, (size_t)t->n, sizeof key, compare_key);
    return found ? found->id : -1;
}

/* Fills by_id from the lines. */
static void number_lines(tokenizer *t, const slice *lines)
{
    for (int32_t id = 0; id < t->n; id++) {
        slice line = lines[id];
        if (line.bytes > 0 && line.at[line.bytes - 1] == '\r')
            line.bytes--;
        t->by_id[id] = (token){line.at, line.bytes, id};
        if (line.bytes > t->longest)
            t->longest = line.bytes;
    }
}

static heed_status sort_tokens(tokenizer *t, heed_error *why)
{
    const size_t n = (size_t)t->n;
    memcpy(t->by_text, t->by_id, n * sizeof *t->by_text);
    qsort(t->by_text, n, sizeof *t->by_text, compare_tokens);
    for (size_t i = 1; i < n; i++)
        if (compare_text(&t->by_text[i - 1], &t->by_text[i]) == 0)
            return refuse(why, "the vocabulary has one token twice: lines %d and %d",
                          (int)t->by_text[i - 1].id + 1, (int)t->by_text[i].id + 1);
    for (int i = 0; i < N_SPECIALS; i++) {
        t->special[i] = find(t, special_text[i], strlen(special_text[i]));
        if (i <= UNK && t->special[i] < 0)
            return refuse(why, "the vocabulary has no token %s", special_text[i]);
    }
    return HEED_OK;
}

heed_status tokenizer_create(file vocabulary, int64_t n_ids, tokenizer **out, heed_error *why)
{
    slice *lines;
    int64_t n;
    heed_status status = file_lines(vocabulary, &lines, &n, why);
    if (status != HEED_OK)
        return status;
    if (n == 0 || n > INT32_MAX || n > n_ids) {
        free(lines);
        return refuse(why, "the vocabulary has %lld tokens, the model embeddings for %lld",
                      (long long)n, (long long)n_ids);
    }
    tokenizer *t = calloc(1, sizeof *t);
    if (t) {
        t->n = (int32_t)n;
        t->by_id = calloc((size_t)n, sizeof *t->by_id);
        t->by_text = calloc((size_t)n, sizeof *t->by_text);
    }
    if (t && t->by_id && t->by_text) {
        number_lines(t, lines);
        status = sort_tokens(t, why);
    } else {
        status = no_memory(why, "the vocabulary");
    }
    free(lines);
    if (status == HEED_OK)
        *out = t;
    else
        tokenizer_free(t);
    return status;
}

void tokenizer_free(tokenizer *t)
{
    if (!t)
        return;
    free(t->by_id);
    free(t->by_text);
    free(t);
}

const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *bytes)
{
    *bytes = t->by_id[id].bytes;
    return t->by_id[id].text;
}

/* ---- kinds of characters --------------------------------------------------------------------- */

/* Whether a character has Unicode's property White_Space. */
static int is_space(utf8proc_int32_t c)
{
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Whether a character is dropped: control, format and private characters are, except for tabs and
 * line ends, which are white space. */
static int is_removed(utf8proc_int32_t c)
{
    utf8proc_category_t kind = utf8proc_category(c);
    if (c == '\t' || c == '\n' || c == '\r')
        return 0;
    return c == 0 || c == 0xfffd || kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_CO;
}

/* Whether a character is in the blocks of ideographs. Kana and Hangul are not, since they form
 * words. */
static int is_ideograph(utf8proc_int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Whether a character is punctuation: by Unicode, or any ASCII character other than letters,
 * digits, spaces and control characters, so $ too. */
static int is_punctuation(utf8proc_int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    utf8proc_category_t kind = utf8proc_category(c);
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

/* ---- from text to ids ------------------------------------------------------------------------ */

/* The ids that are being collected. One place is kept free for [SEP]. */
typedef struct ids {
    int32_t *id;
    int n, most;
} ids;

static int is_full(const ids *out)
{
    return out->n >= out->most - 1;
}

static void add(ids *out, int32_t id)
{
    if (!is_full(out))
        out->id[out->n++] = id;
}

/* Adds the ids of the pieces of a word: each time the longest token that fits, where tokens inside
 * the word begin with "##". If no token fits at some place, the whole word is unknown. */
static void add_word(const tokenizer *t, const char *word, size_t bytes, int letters, ids *out)
{
    char text[2 + 4 * MOST_LETTERS] = "##";
    int32_t pieces[4 * MOST_LETTERS]; /* a token may be a single byte of a letter */
    int n = 0;
    if (letters > MOST_LETTERS) {
        add(out, t->special[UNK]);
        return;
    }
    for (size_t at = 0, end; at < bytes; at = end) {
        size_t mark = at > 0 ? 2 : 0;
        int32_t id = -1;
        memcpy(text + 2, word + at, bytes - at);
        end = bytes - at + mark > t->longest ? at + t->longest - mark : bytes;
        for (; end > at; end--)
            if ((id = find(t, text + 2 - mark, mark + end - at)) >= 0)
                break;
        if (id < 0) {
            add(out, t->special[UNK]);
            return;
        }
        pieces[n++] = id;
    }
    for (int i = 0; i < n; i++)
        add(out, pieces[i]);
}

/* Splits cleaned, decomposed text into words. On the way it drops accents (nonspacing marks) and
 * makes letters lower case, which never yields a character at which the text would have to be
 * split. */
static void add_words(const tokenizer *t, const utf8proc_int32_t *text, size_t n, ids *out)
{
    char word[4 * (MOST_LETTERS + 1)];
    size_t bytes = 0;
    int letters = 0;
    for (size_t i = 0; i <= n && !is_full(out); i++) {
        utf8proc_int32_t c = i < n ? text[i] : ' ';
        int alone = is_punctuation(c) || is_ideograph(c);
        if ((alone || is_space(c)) && letters > 0) {
            add_word(t, word, bytes, letters, out);
            bytes = 0;
            letters = 0;
        }
        if (is_space(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_MN)
            continue;
        if (letters <= MOST_LETTERS) /* beyond that the word is unknown anyway */
            bytes +=
                (size_t)utf8proc_encode_char(utf8proc_tolower(c), (utf8proc_uint8_t *)word + bytes);
        letters += letters <= MOST_LETTERS;
        if (alone) {
            add_word(t, word, bytes, letters, out);
            bytes = 0;
            letters = 0;
        }
    }
}

/* Copies the characters that are kept, with spaces around ideographs. out has 5 bytes for each byte
 * of text. */
static size_t clean_up(const char *text, size_t bytes, utf8proc_uint8_t *out)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                 (utf8proc_ssize_t)(bytes - at), &c);
        at += step > 0 ? (size_t)step : 1;
        if (step <= 0 || is_removed(c))
            continue;
        if (is_ideograph(c))
            out[used++] = ' ';
        used += (size_t)utf8proc_encode_char(is_space(c) ? ' ' : c, out + used);
        if (is_ideograph(c))
            out[used++] = ' ';
    }
    return used;
}

/* Adds the ids of a text that has no special tokens. */
static heed_status add_text(const tokenizer *t, const char *text, size_t bytes, ids *out,
                            heed_error *why)
{
    if (bytes == 0)
        return HEED_OK;
    utf8proc_uint8_t *clean = bytes < SIZE_MAX / 8 ? malloc(5 * bytes) : NULL;
    utf8proc_int32_t *parts = NULL;
    utf8proc_ssize_t n = -1;
    if (clean) {
        size_t used = clean_up(text, bytes, clean);
        /* Splits letters with accents into several characters, in the order of Unicode. */
        n = utf8proc_decompose(clean, (utf8proc_ssize_t)used, NULL, 0, UTF8PROC_DECOMPOSE);
        if (n >= 0)
            parts = malloc(((size_t)n + 1) * sizeof *parts);
        if (parts)
            n = utf8proc_decompose(clean, (utf8proc_ssize_t)used, parts, n, UTF8PROC_DECOMPOSE);
    }
    if (parts && n >= 0)
        add_words(t, parts, (size_t)n, out);
    free(clean);
    free(parts);
    return parts && n >= 0 ? HEED_OK : no_memory(why, "a line of text");
}

/* The special token with which text begins; -1 if there is none. */
static int special_at(const tokenizer *t, const char *text, size_t bytes)
{
    for (int i = 0; i < N_SPECIALS; i++) {
        size_t n = strlen(special_text[i]);
        if (t->special[i] >= 0 && bytes >= n && memcmp(text, special_text[i], n) == 0)
            return i;
    }
    return -1;
}

heed_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, int32_t *id,
                             int most, int *n, heed_error *why)
{
    ids out = {id, 0, most};
    heed_status status = HEED_OK;
    size_t from = 0, at = 0;
    add(&out, t->special[CLS]);
    while (at < bytes && status == HEED_OK && !is_full(&out)) {
        int special = special_at(t, text + at, bytes - at);
        if (special < 0) {
            at++;
            continue;
        }
        status = add_text(t, text + from, at - from, &out, why);
        add(&out, t->special[special]);
        at += strlen(special_text[special]);
        from = at;
    }
    if (status == HEED_OK)
        status = add_text(t, text + from, bytes - from, &out, why);
    if (status != HEED_OK)
        return status;
    id[out.n++] = t->special[SEP];
    *n = out.n;
    return HEED_OK;
}
