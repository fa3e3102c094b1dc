#include "evaluate.h"

#include "lines.h"
#include "operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most tokens of a line: between two tokens there is at least one blank. */
#define MAX_TOKENS ((LINE_LIMIT + 1) / 2)

/* A value that waits for its operator, and the token that it came from. */
struct operand {
    double value;
    size_t token;
};

/* Static, because nesting can be as deep as the number of tokens: too much for some stacks. */
static struct token tokens[MAX_TOKENS];
static struct operand stack[MAX_TOKENS];

/* strtod() alone would also take "inf", "nan" and hexadecimal numbers. */
static bool is_decimal(const struct token *token)
{
    static const char digits[] = "0123456789";
    const char *p = token->text;
    p += *p == '+' || *p == '-';
    size_t whole = strspn(p, digits);
    size_t fraction = 0;
    p += whole;
    if (*p == '.') {
        p++;
        fraction = strspn(p, digits);
        p += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        size_t exponent = strspn(p, digits);
        if (exponent == 0)
            return false;
        p += exponent;
    }
    return p == token->text + token->length;
}

/* Replaces the token's operands on top of the stack by the token's value. */
static const char *evaluate_token(size_t index, enum notation notation, size_t *depth)
{
    const struct token *token = &tokens[index];
    const struct operator* op = find_operator(token);
    double value;

    if (op) {
        size_t arity = (size_t)op->arity;
        if (*depth < arity)
            return "missing operand";
        *depth -= arity;
        double operands[2] = {0, 0};
        for (size_t i = 0; i < arity; i++) {
            /* Prefix is scanned from the right, so that the first operand is on top. */
            size_t place = notation == PREFIX ? arity - 1 - i : i;
            operands[i] = stack[*depth + place].value;
        }
        const char *error = apply_operator(op, operands, &value);
        if (error)
            return error;
    } else if (is_decimal(token)) {
        value = strtod(token->text, NULL);
        if (isinf(value))
            return "the number is too large";
    } else {
        return "not a number, operator, function or constant";
    }
    stack[(*depth)++] = (struct operand){.value = value, .token = index};
    return NULL;
}

static struct evaluation failure(const char *error, size_t index)
{
    return (struct evaluation){.error = error, .token_number = index + 1, .token = tokens[index]};
}

struct evaluation evaluate(const char *text, size_t length, enum notation notation)
{
    size_t count = split_tokens(text, length, tokens, MAX_TOKENS);
    if (count == 0)
        return (struct evaluation){.error = "empty expression"};
    if (count > MAX_TOKENS)
        return (struct evaluation){.error = "too many tokens"};

    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        size_t index = notation == PREFIX ? count - 1 - i : i;
        const char *error = evaluate_token(index, notation, &depth);
        if (error)
            return failure(error, index);
    }
    if (depth > 1)
        return failure("left over, no operator takes it", stack[depth - 2].token);
    return (struct evaluation){.value = stack[0].value};
}
