"""A small language for kernels: Python that writes LLVM's intermediate representation.

A kernel is a function of a `Code` and its parameters. What it computes with are `Value`s, numbers
or vectors of `LANES` of them: their operators append instructions. Python's own loops and lists
unroll; `Code.loop` is a loop of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from llvmlite import ir

LANES = 8
"""Numbers in a vector of 32 bits each: what a register of AVX2 holds."""

INT64, INT32, INT16, INT8 = (ir.IntType(bits) for bits in (64, 32, 16, 8))
HALF, FLOAT = ir.HalfType(), ir.FloatType()

Number: TypeAlias = "Value | int | float"


def vector_of(element: ir.Type, lanes: int = LANES) -> ir.Type:
    """The type of a vector of `lanes` numbers."""
    return ir.VectorType(element, lanes)


class Value:
    """A number or a vector of numbers, and the instructions that make others of it."""

    def __init__(self, code: Code, made: Any) -> None:
        self.code = code
        self.made = made

    @property
    def type(self) -> ir.Type:
        """Of the number, or of the vector."""
        return self.made.type

    @property
    def _element(self) -> ir.Type:
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    def _do(self, for_floats: str, for_integers: str, other: Number) -> Value:
        name = for_floats if self._element in (HALF, FLOAT) else for_integers
        operand = self.code.like(other, self.type)
        return Value(self.code, getattr(self.code.builder, name)(self.made, operand.made))

    def __add__(self, other: Number) -> Value:
        return self._do("fadd", "add", other)

    def __sub__(self, other: Number) -> Value:
        return self._do("fsub", "sub", other)

    def __mul__(self, other: Number) -> Value:
        return self._do("fmul", "mul", other)

    def __truediv__(self, other: Number) -> Value:
        return self._do("fdiv", "", other)

    def __floordiv__(self, other: Number) -> Value:
        return self._do("", "sdiv", other)

    def __mod__(self, other: Number) -> Value:
        return self._do("", "srem", other)

    def __lshift__(self, other: Number) -> Value:
        return self._do("", "shl", other)

    def __and__(self, other: Number) -> Value:
        return self._do("", "and_", other)

    def __rshift__(self, other: Number) -> Value:
        """What moves in are zeros."""
        return self._do("", "lshr", other)

    def times(self, factor: Number, plus: Value) -> Value:
        """`self * factor + plus`, rounded once."""
        return self.code.call("llvm.fma", self, self.code.like(factor, self.type), plus)

    def at_most(self, other: Number) -> Value:
        """The smaller one."""
        return self._choose("<=", other)

    def at_least(self, other: Number) -> Value:
        """The larger one."""
        return self._choose(">=", other)

    def _choose(self, comparison: str, other: Number) -> Value:
        operand = self.code.like(other, self.type).made
        builder = self.code.builder
        floats = self._element in (HALF, FLOAT)
        compare = builder.fcmp_ordered if floats else builder.icmp_signed
        return Value(
            self.code,
            builder.select(compare(comparison, self.made, operand), self.made, operand),
        )

    def to(self, element: ir.Type) -> Value:
        """The same as numbers of another type; what is behind a float's point is cut off."""
        before = self._element
        if before == element:
            return self
        builder = self.code.builder
        if isinstance(before, ir.IntType):
            if isinstance(element, ir.IntType):
                convert = builder.sext if element.width > before.width else builder.trunc
            else:
                convert = builder.sitofp
        elif isinstance(element, ir.IntType):
            convert = builder.fptosi
        else:
            convert = builder.fpext
        lanes = isinstance(self.type, ir.VectorType)
        wanted = vector_of(element, self.type.count) if lanes else element
        return Value(self.code, convert(self.made, wanted))

    def as_unsigned(self, element: ir.IntType) -> Value:
        """Integers that have no sign as wider ones."""
        wanted = vector_of(element, self.type.count)
        return Value(self.code, self.code.builder.zext(self.made, wanted))

    def bits_as(self, type_: ir.Type) -> Value:
        """The same bits as another type of the same size."""
        return Value(self.code, self.code.builder.bitcast(self.made, type_))

    def spread(self, lanes: int = LANES) -> Value:
        """A vector of this number alone."""
        wanted = vector_of(self.type, lanes)
        builder = self.code.builder
        undefined = ir.Constant(wanted, ir.Undefined)
        first = builder.insert_element(undefined, self.made, ir.Constant(INT32, 0))
        zeros = ir.Constant(vector_of(INT32, lanes), [0] * lanes)
        return Value(self.code, builder.shuffle_vector(first, undefined, zeros))

    def sum(self) -> Value:
        """Of a vector's floats: halves are added until one is left."""
        return self._fold(lambda left, right: left + right)

    def largest(self) -> Value:
        """Of a vector's numbers."""
        return self._fold(lambda left, right: left.at_least(right))

    def _fold(self, join: Any) -> Value:
        folded, lanes = self, self.type.count
        builder = self.code.builder
        while lanes > 1:
            lanes //= 2
            low, high = (
                Value(
                    self.code,
                    builder.shuffle_vector(
                        folded.made,
                        folded.made,
                        ir.Constant(vector_of(INT32, lanes), list(range(start, start + lanes))),
                    ),
                )
                for start in (0, lanes)
            )
            folded = join(low, high)
        return Value(self.code, builder.extract_element(folded.made, ir.Constant(INT32, 0)))


class Pointer:
    """Where numbers of one type lie side by side; places are counted in them."""

    def __init__(self, code: Code, address: Any, element: ir.Type) -> None:
        self._code = code
        self.address = address
        self.element = element
        # Of a single number: vectors may begin anywhere.
        self._align = {HALF: 2, FLOAT: 4}.get(element) or element.width // 8

    def at(self, place: Number) -> Pointer:
        """From another place on."""
        index = self._code.like(place, INT64).made
        address = self._code.builder.gep(self.address, [index], source_etype=self.element)
        return Pointer(self._code, address, self.element)

    def of(self, element: ir.Type) -> Pointer:
        """The same place, as that of numbers of another type."""
        return Pointer(self._code, self.address, element)

    def load(self, place: Number, lanes: int | None = None) -> Value:
        """The number there, or a vector of as many as `lanes`."""
        type_ = self.element if lanes is None else vector_of(self.element, lanes)
        address = self.at(place).address
        return Value(self._code, self._code.builder.load(address, typ=type_, align=self._align))

    def prefetch(self) -> None:
        """Have the cache line of this place read soon; the place need not be there."""
        read, keep, data = (ir.Constant(INT32, each) for each in (0, 3, 1))
        operands = (Value(self._code, each) for each in (self.address, read, keep, data))
        self._code.external("llvm.prefetch.p0", ir.VoidType(), *operands)

    def store(self, place: Number, value: Value) -> None:
        """Write a number or a vector."""
        address = self.at(place).address
        self._code.builder.store(value.made, address, align=self._align)


class Variable:
    """A value that loops may change."""

    def __init__(self, code: Code, initial: Value) -> None:
        self._code = code
        self._type = initial.type
        # In the function's first block: one in a loop would take the stack anew each time.
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(self._type)
        self.value = initial

    @property
    def value(self) -> Value:
        """What it is."""
        return Value(self._code, self._code.builder.load(self._place, typ=self._type))

    @value.setter
    def value(self, value: Value) -> None:
        self._code.builder.store(value.made, self._place)


class Code:
    """A kernel's instructions.

    Args:
        function: that they go to.

    Attributes:
        module: of the function.
        builder: of the instructions.
    """

    def __init__(self, function: ir.Function) -> None:
        self.module = function.module
        entry = function.append_basic_block("entry")
        start = function.append_basic_block("start")
        ir.IRBuilder(entry).branch(start)
        self.builder = ir.IRBuilder(start)

    def like(self, value: Number, type_: ir.Type) -> Value:
        """`value` as one of that type: numbers of Python are constants, a number fills a vector."""
        if not isinstance(value, Value):
            if isinstance(type_, ir.VectorType):
                return Value(self, ir.Constant(type_, [value] * type_.count))
            return Value(self, ir.Constant(type_, value))
        if isinstance(type_, ir.VectorType) and not isinstance(value.type, ir.VectorType):
            return value.spread(type_.count)
        return value

    def integer(self, value: int) -> Value:
        """A constant."""
        return self.like(value, INT64)

    def zeros(self, element: ir.Type) -> Value:
        """A vector of them."""
        return self.like(0, vector_of(element))

    def call(self, name: str, *operands: Value) -> Value:
        """One of LLVM's intrinsic functions; its name lacks the type, which is the operands'."""
        type_ = operands[0].type
        element = type_.element if isinstance(type_, ir.VectorType) else type_
        word = "f32" if element == FLOAT else f"i{element.width}"
        lanes = f"v{type_.count}" if isinstance(type_, ir.VectorType) else ""
        full = f"{name}.{lanes}{word}"
        return self.external(full, type_, *operands)

    def external(self, name: str, result: ir.Type, *operands: Value) -> Value:
        """What a function from elsewhere returns."""
        types = [operand.type for operand in operands]
        function = self.module.globals.get(name) or ir.Function(
            self.module, ir.FunctionType(result, types), name
        )
        return Value(self, self.builder.call(function, [operand.made for operand in operands]))

    @contextmanager
    def loop(self, stop: Number, start: Number = 0, step: int = 1) -> Iterator[Value]:
        """What is in the block, for every number from `start` to before `stop`."""
        builder = self.builder
        first, end = self.like(start, INT64).made, self.like(stop, INT64).made
        before = builder.block
        head, body, behind = (builder.append_basic_block(name) for name in ("loop", "do", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(INT64)
        index.add_incoming(first, before)
        builder.cbranch(builder.icmp_signed("<", index, end), body, behind)
        builder.position_at_end(body)
        yield Value(self, index)
        index.add_incoming(builder.add(index, ir.Constant(INT64, step)), builder.block)
        builder.branch(head)
        builder.position_at_end(behind)

    # Threads --------------------------------------------------------------------------------------

    def share_of(self, count: Value) -> tuple[Value, Value]:
        """What this thread of the team has of `count` things: from, and up to before."""
        thread = self.thread()
        threads = self.external("omp_get_num_threads", INT32).to(INT64)
        return count * thread // threads, count * (thread + 1) // threads

    @contextmanager
    def turns(self, count: Value) -> Iterator[Value]:
        """What is in the block, for each of `count` things that is this thread's, which take them
        in turns."""
        thread = self.thread()
        threads = self.external("omp_get_num_threads", INT32).to(INT64)
        with self.loop((count - thread + threads - 1) // threads) as turn:
            yield turn * threads + thread

    def thread(self) -> Value:
        """This thread's number in the team."""
        return self.external("omp_get_thread_num", INT32).to(INT64)

    def wait_for_all(self) -> None:
        """Until all threads of the team are here."""
        self.external("GOMP_barrier", ir.VoidType())


def exp(x: Value) -> Value:
    """e to the power of each float of a vector, to about a unit in the last place.

    x is n times ln 2 and a rest, whose power is a polynomial (Cephes' `expf`: S. L. Moshier,
    Methods and Programs for Mathematical Functions, 1989).
    """
    code = x.code
    x = x.at_least(-87.0).at_most(88.0)
    n = code.call("llvm.rint", x * 1.4426950408889634)
    rest = n.times(-0.693359375, x)
    rest = n.times(2.12194440e-4, rest)
    power = code.like(1.9875691500e-4, x.type)
    for coefficient in (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ):
        power = power.times(rest, code.like(coefficient, x.type))
    power = power.times(rest * rest, rest + 1.0)
    return power * ((n.to(INT32) + 127) << 23).bits_as(x.type)
