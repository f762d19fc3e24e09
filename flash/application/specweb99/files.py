#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the files of the dynamic requests: a file set, users and ads.

    python3 files.py DIRECTORY [--directories N] [--users N]

The sizes, classes and formats are those of SPECweb99, the contents are this program's.
"""

import argparse
import random
import time
from pathlib import Path

TAG = b'<!WEB99CAD><IMG SRC="/file_set/dirNNNNN/classX_Y"><!/WEB99CAD>\n'
ADS = 360
FIRST_USER = 10000


def file_set(place, directories):
    """Nine files of each class: hundreds of bytes, thousands, tens of thousands, hundreds of thousands."""
    letters = random.Random(99)
    text = bytes(letters.choice(b"abcdefghijklmnopqrstuvwxyz \n") for _ in range(1 << 20))
    for number in range(directories):
        directory = place / "file_set" / f"dir{number:05}"
        directory.mkdir(parents=True, exist_ok=True)
        for kind in range(4):
            for one in range(9):
                size = (one + 1) * 1024 * 10**kind // 10
                content = text[:size]
                if kind in (1, 2):
                    content = TAG + content[len(TAG) :]
                (directory / f"class{kind}_{one}").write_bytes(content)


def demographics(numbers):
    """One bit of each kind: gender, age, region and two interests."""
    bits = (28 + numbers.randrange(2), 24 + numbers.randrange(4), 20 + numbers.randrange(4))
    return sum(1 << bit for bit in bits) | 1 << (10 + numbers.randrange(10)) | 1 << numbers.randrange(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--directories", type=int, default=2)
    parser.add_argument("--users", type=int, default=1000)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    file_set(options.directory, options.directories)
    numbers = random.Random(1999)
    users = [f"{FIRST_USER + at:5} {demographics(numbers):8X}\n" for at in range(options.users)]
    (options.directory / "User.Personality").write_text("".join(users), encoding="ascii")
    now = int(time.time())
    ads = []
    for at in range(ADS):
        weights = int("".join(str(numbers.randrange(1, 5)) for _ in range(5)), 16)
        # Some have expired, and the last fits everybody.
        minimum = 0 if at == ADS - 1 else numbers.randrange(1, 8)
        ads.append(f"{at:5} {demographics(numbers):8X} {weights:8X} {minimum:3} {now + numbers.randrange(-3600, 86400):10}\n")
    (options.directory / "Custom.Ads").write_text("".join(ads), encoding="ascii")


if __name__ == "__main__":
    main()
