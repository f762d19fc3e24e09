# SPDX-License-Identifier: MIT OR Apache-2.0
# make demo   on a fresh Debian with Rust: install what is needed, build, measure two real programs
# make test   install what the tests need, pass all of them
# The rest: demo-hbench, demo-flash, build, bench, hot-cold, loop-stalls, in-memory, stages, flashpache, adapters, soak, soak-broker, soak-flash, causes, loops, operator, predictions, predictions-guests, known-answers, phases, fuzz, matrix, lint, install, packages, docs, packages-test, clean.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# Cargo's own target directory, wherever it is configured to be.
TARGET := $(or $(CARGO_TARGET_DIR),target)
CLANG_FORMAT ?= clang-format-19
C_FILES = $(shell git ls-files '*.c' '*.h')

# Loading probes needs root.
AS_ROOT := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)

.PHONY: all demo demo-hbench demo-flash test soak soak-broker soak-flash causes loops operator fuzz matrix build bench finding hot-cold loop-stalls in-memory stages flashpache predictions predictions-guests known-answers phases adapters lint install packages docs packages-test clean

all: build

build:
	scripts/setup build
	$(CARGO) build --release --workspace
	scripts/own-names $(TARGET)/release/libdebox.a $(TARGET)/release/libdebox.a

# Without recordings, which are half of what has to be compiled, and which the demo does not make.
demo:
	scripts/setup demo
	$(CARGO) build --release --package debox-cli --no-default-features
	$(AS_ROOT) scripts/demo $(TARGET)/release/debox

# A machine's vector, and what its parts say: three minutes. Needs no root.
demo-hbench:
	scripts/setup hbench
	$(CARGO) build --release --package hbench
	scripts/demo-hbench $(TARGET)/release/hbench

# Serves a small site from a slow disk, shows it in a browser, and prints what the guard says of flash's loops: half a
# minute. Without root there is neither a slow disk nor the guard.
demo-flash:
	scripts/setup build flash browser
	$(CARGO) build --release --package debox-cli --package latlab --package flash
	$(AS_ROOT) scripts/demo-flash $(TARGET)/release

test:
	scripts/setup build test guest browser
	scripts/test

# The tests on three other kernels, booted under emulation, all at once: two and a half to three hours on two
# processors that do nothing else.
matrix:
	scripts/setup build test guest
	scripts/guests

# A minute at the full rate of calls; too long for every change.
soak:
	scripts/setup build test
	$(CARGO) build --release --workspace
	DEBOX_SOAK_SECONDS=60 $(CARGO) test --release --package debox-tests --test scale -- \
		--nocapture --test-threads 1

# Storms on the broker for half an hour, or for so many minutes: make soak-broker MINUTES=5
MINUTES ?= 30
soak-broker:
	scripts/setup build test
	$(CARGO) build --release --package debox-cli --package debox-capi
	$(AS_ROOT) scripts/soak-broker --minutes $(MINUTES) --debox $(TARGET)/release/debox \
		--library $(TARGET)/release/libdebox.so

# Everything that a server may meet, all at once, against flash, for half an hour or for so many minutes:
# make soak-flash MINUTES=5
soak-flash:
	scripts/setup build test
	FLASH_SOAK_SECONDS=$$(($(MINUTES) * 60)) $(CARGO) test --release --package flash --test soak -- --nocapture

# Programs with one known cause each, measured in every way there is, and whether the headline names it: some
# minutes, and the table of debox/docs/causes.md. As root, on a machine that does nothing else.
causes:
	scripts/setup build test
	$(CARGO) build --release --workspace
	$(AS_ROOT) $(TARGET)/release/debox-causes

# Event loops of six runtimes, half of which block, ten times each under the guard: twenty minutes. As root, on a
# machine that does nothing else.
loops:
	scripts/setup build test
	$(CARGO) build --release --workspace --all-targets
	$(AS_ROOT) $(TARGET)/release/debox-loops

# A machine with five faults at once, and the way from `debox top` to each by keystrokes, then the same from the page of
# a recording; and five questions about each of six recordings, answered from their pages: six minutes. As root, on a
# machine that does nothing else. OPERATOR names the directory for the screens and the pages.
OPERATOR ?= operator
operator:
	scripts/setup build operator browser
	$(CARGO) build --release --workspace --bin debox --bin latlab
	$(AS_ROOT) python3 debox/tests/operator/trial.py --debox $(TARGET)/release/debox --latlab $(TARGET)/release/latlab \
		-o $(OPERATOR)
	$(AS_ROOT) python3 debox/tests/operator/reader.py --debox $(TARGET)/release/debox --latlab $(TARGET)/release/latlab \
		-o $(OPERATOR)/pages

# Each fuzz target for half a minute, or for so many seconds: make fuzz SECONDS=600. Some targets
# alone: make fuzz TARGETS='broker unwinding'
SECONDS ?= 30
TARGETS ?=
fuzz:
	scripts/setup build fuzz
	scripts/fuzz --seconds $(SECONDS) $(TARGETS)

bench: build
	scripts/setup bench
	python3 debox/bench/overhead/run.py
	python3 debox/bench/accounts/run.py
	python3 debox/bench/history/run.py
	python3 latlab/bench/beside.py --latlab $(TARGET)/release/latlab
	python3 flash/bench/costs.py --flash $(TARGET)/release/flash
	python3 hbench/bench/peers.py --hbench $(TARGET)/release/hbench

# The tables of latlab/docs/latlab-finding.md anew, some 15 minutes; as root, on a machine that does nothing else.
# STUDY names the new directory for what is measured.
STUDY ?= study
finding: build
	scripts/setup test
	$(TARGET)/release/latlab study -o $(STUDY)
	scripts/finding $(STUDY)

# How much cold requests delay hot ones, for flash and all servers that it is compared with, and whether flash meets
# its goals: 20 minutes. As root, on a machine that does nothing else. HOT_COLD names the new directory.
HOT_COLD ?= hot-cold
hot-cold: build
	scripts/setup test
	$(AS_ROOT) python3 flash/bench/hot_cold.py --latlab $(TARGET)/release/latlab -o $(HOT_COLD)

# Whether flash's loop waits for anything but events while each read of its disk takes 120 ms, and how long its turns are: a
# minute and a half. As root, on a machine that does nothing else.
loop-stalls: build
	scripts/setup test
	$(AS_ROOT) python3 flash/bench/stalls.py --programs $(TARGET)/release

# flash beside nginx, Apache, lighttpd, h2o and Caddy with files in memory, and whether flash meets its goals: 20 minutes.
# As root, on a machine that does nothing else. IN_MEMORY names the file that the rounds are added to.
IN_MEMORY ?= in-memory.json
in-memory: build
	scripts/setup test bench
	$(AS_ROOT) python3 flash/bench/in_memory.py -o $(IN_MEMORY) --idle --flash $(TARGET)/release/flash \
		--nginx "$$(flash/bench/newest_nginx $(TARGET)/newest-nginx)"

# The stages of Flash's history on a slow disk, and in which calls DeBox finds each to wait: three minutes. As root, on a
# machine that does nothing else. STAGES names the new directory.
STAGES ?= stages
stages: build
	scripts/setup test
	$(AS_ROOT) python3 flash/bench/stages.py -o $(STAGES) --flash $(TARGET)/release/flash \
		--debox $(TARGET)/release/debox --latlab $(TARGET)/release/latlab

# What flash's path server gains for Apache and CherryPy on a slow disk, and what DeBox finds their processes to wait for: 20
# minutes. As root, on a machine that does nothing else. FLASHPACHE names the file for all figures.
FLASHPACHE ?= flashpache.json
flashpache: build
	scripts/setup test bench
	$(AS_ROOT) python3 flash/bench/flashpache.py --programs $(TARGET)/release --json $(FLASHPACHE)

# How well hbench predicts real programs on machines that this one can be: half an hour, with QUICK=--quick ten minutes. As
# root, on a machine that does nothing else. PREDICTIONS names the new directory.
PREDICTIONS ?= predictions
QUICK ?=
predictions: build
	scripts/setup test programs
	$(AS_ROOT) env RUNSC=$(RUNSC) python3 hbench/bench/predict.py --hbench $(TARGET)/release/hbench -o $(PREDICTIONS) $(QUICK)

# The same for emulated machines with other kernels: Debian's 6.1 and its newest, with and without mitigations. 15 to 30
# minutes; as root.
GUEST_PREDICTIONS ?= guest-predictions
predictions-guests: build
	scripts/setup test guest programs
	$(AS_ROOT) env CARGO_TARGET_DIR=$(abspath $(TARGET)) \
		python3 hbench/bench/predict.py --hbench $(TARGET)/release/hbench -o $(GUEST_PREDICTIONS) $(QUICK) \
		--machines guest_old guest_newest guest_mitigated

# Primitives that are slowed on purpose: whether hbench finds by how much and which. Two minutes; as root.
known-answers: build
	scripts/setup test bench
	$(AS_ROOT) python3 hbench/bench/known.py --hbench $(TARGET)/release/hbench

# What nginx, Apache and flash do for one request, in phases (hbench/docs/phases.md). A minute; as root.
phases: build
	scripts/setup test
	$(AS_ROOT) python3 hbench/bench/phases.py --debox $(TARGET)/release/debox --flash $(TARGET)/release/flash --text

# What lets other servers use flash's path server (flash/adapters/README.md).
adapters:
	scripts/setup build test
	$(MAKE) -C flash/adapters OUT=$(abspath $(TARGET))/adapters all apache

# The fuzz targets are a workspace of their own, with another profile. With the same one, clippy's checked dependencies
# are used again.
LIKE_THE_WORKSPACE = CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=false \
	CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=false CARGO_PROFILE_RELEASE_LTO=off

lint:
	scripts/setup build lint fuzz
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --release -- -D warnings
	$(CARGO) clippy --package debox-cli --no-default-features --release -- -D warnings
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(LIKE_THE_WORKSPACE) $(CARGO) check --quiet --release --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# Installs what was built; building as root is not needed for it.
install:
	DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) ADAPTERS=$(TARGET)/adapters scripts/install $(TARGET)/release

# Debian packages, in target/packages, for this release of Debian and later ones.
packages:
	scripts/setup build packages
	scripts/packages

# The documentation as a site, target/docs/html, with all links checked.
docs:
	scripts/setup docs
	scripts/docs

# The packages, each used by what it is made for, in clean roots of Debian 12 and 13.
packages-test: packages
	$(AS_ROOT) scripts/packages-test

clean:
	$(CARGO) clean
