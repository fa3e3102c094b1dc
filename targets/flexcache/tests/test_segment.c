/* Tests of the rules that keep copies consistent, in one process. */
#define _GNU_SOURCE

#include "clocks.h"
#include "segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char path[64];
static const flex_state later = "later";

static struct segment *make(unsigned process, bool invalidates)
{
    unlink(path);
    struct segment *segment = make_segment(path, 0, process, invalidates);
    CHECK(segment);
    return segment;
}

static void drop(struct segment *segment)
{
    munmap(segment, sizeof *segment);
}

static flex_oid add_object(struct segment *segment)
{
    flex_state state = "new";
    flex_oid oid;
    CHECK(create_object(segment, state, &oid) == FLEX_OK);
    return oid;
}

/* Copies an object of `from` to `to`; returns its slot. */
static unsigned fetch(struct segment *to, struct segment *from, const flex_oid *oid)
{
    flex_copy copy;
    unsigned slot;
    CHECK(find_slot(to, oid, &slot) == FLEX_OK);
    CHECK(give_object(from, oid->number, &copy) == FLEX_OK);
    CHECK(install_copy(to, slot, &copy, arrivals_of(to)));
    return slot;
}

/* Process `by` writes an object of `home`. */
static void write_remote(struct segment *by, struct segment *home, const flex_oid *oid)
{
    flex_update update = {.oid = *oid, .state = "written"};
    flex_copy copy;
    begin_write(by, update.clock);
    CHECK(take_write(home, &update, &copy) == FLEX_OK);
    CHECK(is_known_to(update.clock, copy.stamp));
}

static bool is_valid(struct segment *segment, unsigned slot)
{
    flex_state state;
    return read_copy(segment, slot, state);
}

static void test_clocks(void)
{
    flex_clock a = {1, 2}, b = {1, 3}, c = {2, 2};
    CHECK(is_before(a, b) && !is_before(b, a) && !is_before(a, a));
    CHECK(!is_before(b, c) && !is_before(c, b));
    merge(b, c);
    CHECK(b[0] == 2 && b[1] == 3 && is_before(c, b));
}

/* y is cached, then x, whose writer knew a later y: so the copy of y is outdated. */
static void test_outdated_copy(bool invalidates)
{
    struct segment *home = make(0, true), *reader = make(1, invalidates);
    flex_oid y = add_object(home), x = add_object(home);
    unsigned slot_y = fetch(reader, home, &y), slot_x = fetch(reader, home, &x);
    /* x is newer than y, and may depend on a newer y. */
    CHECK(is_valid(reader, slot_x) && is_valid(reader, slot_y) == !invalidates);
    fetch(reader, home, &y);
    CHECK(is_valid(reader, slot_x) && is_valid(reader, slot_y));

    CHECK(write_owned(home, y.number, later) == FLEX_OK);
    CHECK(write_owned(home, x.number, later) == FLEX_OK);
    CHECK(is_valid(reader, slot_y)); /* the reader may not know yet */
    fetch(reader, home, &x);
    CHECK(is_valid(reader, slot_y) == !invalidates);
    drop(home);
    drop(reader);
}

/* Writers without knowledge of each other do not outdate each other's objects. */
static void test_concurrent_copies(void)
{
    struct segment *one = make(0, true), *other = make(1, true), *reader = make(2, true);
    flex_oid x = add_object(one), y = add_object(other);
    unsigned slot_x = fetch(reader, one, &x), slot_y = fetch(reader, other, &y);
    CHECK(is_valid(reader, slot_x) && is_valid(reader, slot_y));
    CHECK(write_owned(other, y.number, later) == FLEX_OK);
    fetch(reader, other, &y);
    CHECK(is_valid(reader, slot_x) && is_valid(reader, slot_y));
    /* But the reader's own write is after both. */
    flex_oid own = add_object(reader);
    fetch(one, other, &y);
    unsigned slot = fetch(one, other, &y);
    fetch(one, reader, &own);
    CHECK(!is_valid(one, slot));
    drop(one);
    drop(other);
    drop(reader);
}

/* A write that arrives at an object's home brings the writer's knowledge. */
static void test_write_at_home(void)
{
    struct segment *home = make(0, true), *writer = make(1, true), *third = make(2, true);
    flex_oid x = add_object(home), y = add_object(third);
    unsigned slot = fetch(home, third, &y);
    CHECK(write_owned(third, y.number, later) == FLEX_OK);
    fetch(writer, third, &y);
    CHECK(is_valid(home, slot));
    write_remote(writer, home, &x);
    CHECK(!is_valid(home, slot));
    CHECK(arrivals_of(home) == 1);
    drop(home);
    drop(writer);
    drop(third);
}

/* The stamps of an object grow with each write, by any writer. */
static void test_stamps_grow(void)
{
    struct segment *home = make(0, true), *one = make(1, true), *other = make(2, true);
    flex_oid x = add_object(home);
    flex_copy before, after;
    CHECK(give_object(home, 0, &before) == FLEX_OK);
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 0)
            CHECK(write_owned(home, 0, later) == FLEX_OK);
        else
            write_remote(i % 3 == 1 ? one : other, home, &x);
        CHECK(give_object(home, 0, &after) == FLEX_OK);
        CHECK(is_before(before.stamp, after.stamp));
        before = after;
    }
    drop(home);
    drop(one);
    drop(other);
}

/* A copy that was fetched before something else arrived is not used. */
static void test_fetch_overtaken(void)
{
    struct segment *home = make(0, true), *reader = make(1, true), *writer = make(2, true);
    flex_oid x = add_object(home), own = add_object(reader);
    flex_copy copy;
    unsigned slot;
    CHECK(find_slot(reader, &x, &slot) == FLEX_OK);
    uint64_t arrivals = arrivals_of(reader);
    CHECK(give_object(home, 0, &copy) == FLEX_OK);
    write_remote(writer, home, &x);
    write_remote(writer, reader, &own);
    CHECK(!install_copy(reader, slot, &copy, arrivals));
    CHECK(!is_valid(reader, slot));
    learn_only(reader, slot, &copy);
    CHECK(!is_valid(reader, slot));
    drop(home);
    drop(reader);
    drop(writer);
}

static void test_limits(void)
{
    struct segment *segment = make(3, true);
    flex_state state = "";
    flex_oid oid;
    flex_copy copy;
    unsigned slot;
    for (unsigned i = 0; i < MOST_OWNED; i++)
        CHECK(create_object(segment, state, &oid) == FLEX_OK && oid.number == i);
    CHECK(create_object(segment, state, &oid) == FLEX_FULL);
    CHECK(give_object(segment, MOST_OWNED, &copy) == FLEX_NOT_FOUND);
    CHECK(write_owned(segment, MOST_OWNED, state) == FLEX_NOT_FOUND);
    CHECK(!read_owned(segment, MOST_OWNED, state));
    for (unsigned i = 0; i < MOST_COPIES; i++)
        CHECK(find_slot(segment, &(flex_oid){1, 1, i}, &slot) == FLEX_OK && slot == i);
    CHECK(find_slot(segment, &(flex_oid){1, 1, 5}, &slot) == FLEX_OK && slot == 5);
    CHECK(find_slot(segment, &(flex_oid){1, 2, 5}, &slot) == FLEX_FULL);
    drop(segment);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/test_segment.%ld", (long)getpid());
    test_clocks();
    test_outdated_copy(true);
    test_outdated_copy(false);
    test_concurrent_copies();
    test_write_at_home();
    test_stamps_grow();
    test_fetch_overtaken();
    test_limits();
    unlink(path);
    puts("segment: all tests passed");
    return 0;
}
