/* The operators, functions and constants an expression may name. */
#ifndef OPERATORS_H
#define OPERATORS_H

#include "tokens.h"

struct operator
{
    const char *name;
    int arity; /* number of operands, 0 for a constant */
    union {
        double constant;
        double (*unary)(double);
        double (*binary)(double, double);
    };
    const char *undefined; /* what is wrong when the result is not a number */
};

/* NULL if the token names none. */
const struct operator* find_operator(const struct token *token);

/* Applies an operator to its operands; NULL, or what is wrong with them. */
const char *apply_operator(const struct operator* op, const double operands[2], double *result);

#endif
