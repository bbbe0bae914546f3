#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The hash that an evidence file carries: SHA-256 over the contents of gpu/**/*.{cu,cuh,hpp,cpp} in the order of their paths.
cd "$(dirname "$0")" || exit 2
find . -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.hpp' -o -name '*.cpp' \) | LC_ALL=C sort | xargs cat | sha256sum | cut -d' ' -f1
