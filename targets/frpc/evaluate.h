/* The value of an expression in prefix or postfix notation. */
#ifndef EVALUATE_H
#define EVALUATE_H

#include "tokens.h"

enum notation { PREFIX, POSTFIX };

struct evaluation {
    const char *error;   /* what is wrong, or NULL */
    size_t token_number; /* where, from 1; 0 if it concerns no token in particular */
    struct token token;
    double value; /* always finite; valid only without an error */
};

/* text[length] must be a NUL. */
struct evaluation evaluate(const char *text, size_t length, enum notation notation);

#endif
