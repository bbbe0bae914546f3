# SPDX-License-Identifier: Apache-2.0
"""Mathematics in gdb: matrices as matrices, rationals as fractions, residues, narrow floats in hex and decimal.

They only read memory, so they work live and on a core dump. `claim` prints the claim that was reached and the
matrices of the derivation that made it.
"""
import re
import struct
import sys
from fractions import Fraction

import gdb
import gdb.printing


# -- numbers -------------------------------------------------------------------------------------------------------

def limbs(pointer, count):
    """An integer of `count` 64-bit limbs, the least significant first."""
    return sum(int(pointer[i]) << (64 * i) for i in range(count))


def mpz(z):
    size = int(z['_mp_size'])
    return limbs(z['_mp_d'], abs(size)) * (-1 if size < 0 else 1)


def field(value, *names):
    """The first member of these names, in the value or in its bases."""
    for name in names:
        try:
            return value[name]
        except gdb.error:
            pass
    raise gdb.error('no member ' + ' or '.join(names) + ' in ' + str(value.type))


def cpp_int(z):
    """Boost's integers: dynamic ones keep few limbs in place, fixed ones have an array."""
    count = int(z['m_limbs']) if has(z, 'm_limbs') else 1
    if has(z, 'm_internal'):
        pointer = z['m_data']['la'] if int(z['m_internal']) else z['m_data']['ld']['data']
    elif has(z, 'm_wrapper'):
        pointer = z['m_wrapper']['m_data']
    else:
        return int(z['m_data']) * (-1 if has(z, 'm_sign') and int(z['m_sign']) else 1)
    return limbs(pointer, count) * (-1 if has(z, 'm_sign') and int(z['m_sign']) else 1)


def has(value, name):
    try:
        value[name]
        return True
    except gdb.error:
        return False


def rational(x):
    backend = x['m_backend']
    if has(backend, 'm_num'):  # Boost's own
        n, d = cpp_int(backend['m_num']), cpp_int(backend['m_denom'])
    else:  # GMP's
        q = backend['m_data'][0]
        n, d = mpz(q['_mp_num']), mpz(q['_mp_den'])
    return str(Fraction(n, d)) if d else '%d/0' % n


def digits(x, count):
    """A fraction in decimal, rounded to `count` significant digits."""
    if x == 0:
        return '0'
    sign, x, e = ('-' if x < 0 else ''), abs(x), 0
    while x >= 10:
        x, e = x / 10, e + 1
    while x < 1:
        x, e = x * 10, e - 1
    s = str(round(x * 10 ** (count - 1)))
    e, s = e + len(s) - count, s.rstrip('0') or '0'
    if 0 <= e < 16:
        s = s.ljust(e + 1, '0')
        return sign + s[:e + 1] + ('.' + s[e + 1:] if len(s) > e + 1 else '')
    if -5 < e < 0:
        return sign + '0.' + '0' * (-e - 1) + s
    return sign + s[0] + ('.' + s[1:] if len(s) > 1 else '') + ('e%d' % e)


def bin_float(x):
    b = x['m_backend']
    bits = 168
    mantissa, exponent = cpp_int(b['m_data']), int(b['m_exponent'])
    if mantissa == 0:
        return '0'
    value = Fraction(mantissa) * Fraction(2) ** (exponent - bits + 1)
    return digits(-value if int(b['m_sign']) else value, 50)


def gf61(x):
    return str(int(x['r_']))


def generic(x):
    num, den = float(x['num_']), float(x['den_'])
    return gf61(x['value_']) + ('' if num == den == 0 else ' {deg %g/%g}' % (num, den) if den else ' {deg %g}' % num)


def rounded(x):
    value, kind = float(x['x_']), str(x.type.strip_typedefs())
    short = '%.9g' % value
    try:
        if 'kBf16' in kind:
            return '0x%04x %s' % (struct.unpack('>I', struct.pack('>f', value))[0] >> 16, short)
        if 'kFp16' in kind:
            return '0x%04x %s' % (struct.unpack('>H', struct.pack('>e', value))[0], short)
        if 'kFp32' in kind or 'kTf32' in kind:
            return '0x%08x %s' % (struct.unpack('>I', struct.pack('>f', value))[0], short)
    except (OverflowError, struct.error):
        pass
    return '%s %s' % (value.hex(), short)


def double_double(x):
    hi, lo = float(x['hi']), float(x['lo'])
    if hi != hi or hi in (float('inf'), float('-inf')):
        return repr(hi)
    return digits(Fraction(hi) + Fraction(lo), 32)


def dual(x):
    return '%s + %s eps' % (number(x['value']), number(x['tangent']))


SCALARS = [  # pattern of the type, name of the set, printer
    (r'^boost::multiprecision::number<.*(gmp_rational|rational_adaptor|cpp_rational)', 'Q', rational),
    (r'^boost::multiprecision::number<.*cpp_bin_float', 'mp50', bin_float),
    (r'^delta::GF61$', 'GF(2^61-1)', gf61),
    (r'^delta::Generic$', 'GF(2^61-1)', generic),
    (r'^delta::Dual<', 'dual numbers', dual),
    (r'^delta::DoubleDouble$', 'double-double', double_double),
    (r'^delta::Rounded<', 'rounded', rounded),
]


def scalar_of(type_):
    name = str(type_.strip_typedefs().unqualified())
    for pattern, label, printer in SCALARS:
        if re.match(pattern, name):
            return label, printer
    return None


def number(x):
    known = scalar_of(x.type)
    if known:
        return known[1](x)
    if x.type.strip_typedefs().code == gdb.TYPE_CODE_FLT:
        return '%.6g' % float(x)
    return str(x)


# -- matrices ------------------------------------------------------------------------------------------------------

def matrix(value):
    """Rows of an Eigen::Matrix as lists of values, with its scalar type."""
    t = value.type.strip_typedefs().unqualified()
    scalar, rows, cols, options = (t.template_argument(i) for i in range(4))
    rows, cols, row_major = int(rows), int(cols), int(options) & 1
    storage = value['m_storage']
    data = storage['m_data']
    if rows < 0:
        rows = int(storage['m_rows'])
    if cols < 0:
        cols = int(storage['m_cols'])
    if data.type.strip_typedefs().code != gdb.TYPE_CODE_PTR:
        data = data['array']
    if rows * cols > 65536 or rows < 0 or cols < 0:
        raise gdb.error('not a matrix yet')
    at = (lambda i, j: data[i * cols + j]) if row_major else (lambda i, j: data[j * rows + i])
    return scalar, [[at(i, j) for j in range(cols)] for i in range(rows)], rows, cols


LARGEST = 16  # rows and columns shown


def drawn(value):
    scalar, entries, rows, cols = matrix(value)
    known = scalar_of(scalar)
    over = 'over ' + (known[0] if known else str(scalar))
    if int(value.type.strip_typedefs().template_argument(2)) == 1:  # a vector lies on its side
        shown = [number(row[0]) for row in entries[:LARGEST]] + (['...'] if rows > LARGEST else [])
        return '[%d] %s:  %s' % (rows, over, '  '.join(shown))
    head = '[%d x %d] %s' % (rows, cols, over)
    shown = [[number(x) for x in row[:LARGEST]] + (['...'] if cols > LARGEST else []) for row in entries[:LARGEST]]
    width = [max((len(row[j]) for row in shown), default=0) for j in range(len(shown[0]) if shown else 0)]
    lines = ['    ' + '  '.join(c.rjust(w) for c, w in zip(row, width)) for row in shown]
    return '\n'.join([head] + lines + (['    ...'] if rows > LARGEST else []))


class Printer:
    def __init__(self, value, text):
        self.value, self.text = value, text

    def to_string(self):
        return self.text(self.value)


class Collection(gdb.printing.PrettyPrinter):
    def __init__(self):
        super().__init__('deltaref')

    def __call__(self, value):
        t = value.type.strip_typedefs().unqualified()
        if t.code == gdb.TYPE_CODE_REF:
            return None
        if re.match(r'^Eigen::Matrix<', str(t)):
            return Printer(value, drawn)
        known = scalar_of(t)
        return Printer(value, known[1]) if known else None


gdb.printing.register_pretty_printer(None, Collection(), replace=True)


# -- claims --------------------------------------------------------------------------------------------------------

def string(value):
    return value['_M_dataplus']['_M_p'].string(length=int(value['_M_string_length']))


def derivation_frame():
    """The innermost frame that is a derivation's own code."""
    frame = gdb.newest_frame()
    while frame is not None:
        # Of the function, not of the line: behind a call the line may be that of something inlined.
        function = frame.function()
        where = function.symtab if function else None
        if where and '/derivations/' in where.fullname() and '/derivations/core/' not in where.fullname() \
                and '/derivations/program/' not in where.fullname():
            return frame
        frame = frame.older()
    return None


def is_mathematics(type_):
    t = type_.strip_typedefs().unqualified()
    if t.code == gdb.TYPE_CODE_REF:
        t = t.target().strip_typedefs().unqualified()
    return bool(re.match(r'^Eigen::Matrix<', str(t)) or scalar_of(t) or t.code == gdb.TYPE_CODE_FLT)


class Claim(gdb.Command):
    """claim: the claim that was reached, where, and every matrix and number of the derivation around it."""

    def __init__(self):
        super().__init__('claim', gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        top = gdb.newest_frame()
        while top is not None and (top.function() is None or 'claim_reached' not in top.function().name):
            top = top.older()
        line = None
        if top is not None:
            claim = top.read_var('claim').referenced_value()
            line = int(claim['line'])
            print('\n%s  %s  %s' % (string(claim['id']), 'holds' if claim['holds'] else 'FAILS', string(claim['statement'])))
        frame = derivation_frame()
        if frame is None:
            print('no derivation is running')
            return
        here, own = frame.find_sal(), frame.function().symtab
        line = line or (here.line if here.symtab and here.symtab.fullname() == own.fullname() else None)
        print('  at %s%s' % (own.filename.split('/')[-1], ':%d' % line if line else ''))
        line = line or sys.maxsize  # somewhere inlined: all there is
        block, seen = frame.block(), set()
        variables = []
        while block and not (block.is_global or block.is_static):
            for s in block:
                if s.name not in seen and (s.is_variable or s.is_argument) and 0 < s.line < line and is_mathematics(s.type):
                    variables.append(s)
                seen.add(s.name)
            if block.function:
                break
            block = block.superblock
        for s in sorted(variables, key=lambda s: s.line):
            try:
                value = s.value(frame)
                if value.type.code == gdb.TYPE_CODE_REF:
                    value = value.referenced_value()
                print('  %s = %s' % (s.name, value.format_string()))
            except (gdb.error, gdb.MemoryError) as e:
                print('  %s: %s' % (s.name, e))


class Returned(gdb.FinishBreakpoint):
    """Back in the derivation, on the line of the claim, where `next`, `print W` and `list` are at home."""

    def stop(self):
        return True


class AtClaim(gdb.Breakpoint):
    """Stops at every claim, or at those of one id: break-at-claim F37."""

    def __init__(self, only=''):
        super().__init__('delta::claim_reached')
        self.silent, self.only = True, only

    def stop(self):
        claim = gdb.newest_frame().read_var('claim').referenced_value()
        if self.only and string(claim['id']) != self.only:
            return False
        gdb.execute('claim')
        called, derivation = gdb.newest_frame(), derivation_frame()
        while derivation is not None and called.older() is not None and called.older() != derivation:
            called = called.older()
        try:
            Returned(called, internal=True)
            return False
        except ValueError:  # inlined: there is nothing to return from
            return True


class BreakAtClaim(gdb.Command):
    """break-at-claim [ID]: stop at the claims of this formula only; without an id at all."""

    def __init__(self):
        super().__init__('break-at-claim', gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument, from_tty):
        for b in gdb.breakpoints() or ():
            if isinstance(b, AtClaim):
                b.delete()
        AtClaim(argument.strip())


Claim()
BreakAtClaim()
