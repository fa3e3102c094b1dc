# Short programs, some at once: for captures.py.
PROGRAMS := $(addprefix program-,$(shell seq 60))

all: $(PROGRAMS)

$(PROGRAMS):
	@head -c 100000 /dev/zero | wc -c > /dev/null

.PHONY: all $(PROGRAMS)
