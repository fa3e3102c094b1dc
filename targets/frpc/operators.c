#include "operators.h"

#include <math.h>
#include <string.h>

/* The greatest whole number whose factorial a double can hold. */
#define MAX_FACTORIAL 170

/*
 * Each function returns NAN where it is undefined.  This includes poles, for which C has infinity,
 * so that infinity always means overflow.
 */

static double add(double a, double b)
{
    return a + b;
}

static double subtract(double a, double b)
{
    return a - b;
}

static double multiply(double a, double b)
{
    return a * b;
}

static double divide(double a, double b)
{
    return b == 0 ? NAN : a / b;
}

static double power(double a, double b)
{
    return a == 0 && b < 0 ? NAN : pow(a, b);
}

static double factorial(double n)
{
    if (n < 0 || n > MAX_FACTORIAL || n != floor(n))
        return NAN;
    double product = 1;
    for (int i = 2; i <= n; i++)
        product *= i;
    return product;
}

static double natural_logarithm(double x)
{
    return x == 0 ? NAN : log(x);
}

static double decimal_logarithm(double x)
{
    return x == 0 ? NAN : log10(x);
}

static double negate(double x)
{
    return -x;
}

static const struct operator operators[] = {
    {"+", 2, {.binary = add}, NULL},
    {"-", 2, {.binary = subtract}, NULL},
    {"*", 2, {.binary = multiply}, NULL},
    {"/", 2, {.binary = divide}, "division by zero"},
    {"^", 2, {.binary = power}, "the power is not a real number"},
    {"!", 1, {.unary = factorial}, "the operand is not a whole number from 0 to 170"},
    {"sin", 1, {.unary = sin}, NULL},
    {"cos", 1, {.unary = cos}, NULL},
    {"tan", 1, {.unary = tan}, NULL},
    {"asin", 1, {.unary = asin}, "the operand is not between -1 and 1"},
    {"acos", 1, {.unary = acos}, "the operand is not between -1 and 1"},
    {"atan", 1, {.unary = atan}, NULL},
    {"exp", 1, {.unary = exp}, NULL},
    {"ln", 1, {.unary = natural_logarithm}, "the operand is not positive"},
    {"log", 1, {.unary = decimal_logarithm}, "the operand is not positive"},
    {"sqrt", 1, {.unary = sqrt}, "the operand is negative"},
    {"abs", 1, {.unary = fabs}, NULL},
    {"neg", 1, {.unary = negate}, NULL},
    {"~", 1, {.unary = negate}, NULL},
    {"pi", 0, {.constant = 3.14159265358979323846}, NULL},
    {"e", 0, {.constant = 2.71828182845904523536}, NULL},
};

const struct operator* find_operator(const struct token *token)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        const struct operator* op = & operators[i];
        if (strlen(op->name) == token->length && memcmp(op->name, token->text, token->length) == 0)
            return op;
    }
    return NULL;
}

const char *apply_operator(const struct operator* op, const double operands[2], double *result)
{
    switch (op->arity) {
    case 0:
        *result = op->constant;
        break;
    case 1:
        *result = op->unary(operands[0]);
        break;
    default:
        *result = op->binary(operands[0], operands[1]);
    }
    if (isnan(*result))
        return op->undefined ? op->undefined : "the result is not a number";
    if (isinf(*result))
        return "overflow";
    return NULL;
}
