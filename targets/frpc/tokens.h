/* Splitting an expression into its tokens, which white space separates. */
#ifndef TOKENS_H
#define TOKENS_H

#include <stdbool.h>
#include <stddef.h>

struct token {
    const char *text;
    size_t length;
};

bool is_blank(char c);

/* Stores up to capacity tokens and returns the number of tokens in the text. */
size_t split_tokens(const char *text, size_t length, struct token *tokens, size_t capacity);

/* Writes a token to a buffer in printable ASCII, cut short if it is long; always one line. */
#define PRINTABLE_SIZE 160
void print_token(const struct token *token, char buffer[PRINTABLE_SIZE]);

#endif
