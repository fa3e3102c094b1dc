#include "tokens.h"

#include <stdio.h>
#include <string.h>

/* This many bytes, each shown as \xNN in the worst case, fit in PRINTABLE_SIZE with the dots. */
#define SHOWN_BYTES 32

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

size_t split_tokens(const char *text, size_t length, struct token *tokens, size_t capacity)
{
    size_t count = 0;
    for (size_t i = 0; i < length;) {
        if (is_blank(text[i])) {
            i++;
            continue;
        }
        size_t start = i;
        while (i < length && !is_blank(text[i]))
            i++;
        if (count < capacity)
            tokens[count] = (struct token){.text = text + start, .length = i - start};
        count++;
    }
    return count;
}

void print_token(const struct token *token, char buffer[PRINTABLE_SIZE])
{
    char *end = buffer;
    for (size_t i = 0; i < token->length && i < SHOWN_BYTES; i++) {
        unsigned char c = (unsigned char)token->text[i];
        if (c > ' ' && c < 0x7f && c != '"' && c != '\\')
            *end++ = (char)c;
        else
            end += sprintf(end, "\\x%02x", c);
    }
    strcpy(end, token->length > SHOWN_BYTES ? "..." : "");
}
