"""The C++ of one PTX instruction. Arithmetic is a call of the function of that name in runtime.h; memory, jumps and calls are written out.
An instruction that is in no table here is refused, so that nothing is translated by a guess."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from .parse import CALL, Function, Module, NotUnderstood, Statement, parameters

TYPES = ["pred", "f16", "f32", "f64"] + [kind + width for kind in "bsu" for width in ("8", "16", "32", "64")]
TYPE = "(?:" + "|".join(TYPES) + ")"
SPECIAL = {f"%{name}.{axis}": f"{variable}.{axis}" for axis in "xyz"
           for name, variable in (("tid", "sim_thread"), ("ntid", "sim_block_size"), ("ctaid", "sim_block"), ("nctaid", "sim_grid_size"))}

# The types of what an instruction takes: T is its own, the last of its name; W is twice as wide, S the source's of a conversion.
OPERANDS = {
    "T": "abs neg not clz popc sqrt.rn rcp.rn rcp.approx.ftz ex2.approx ex2.approx.ftz lg2.approx lg2.approx.ftz rsqrt.approx.ftz",
    "T T": "add sub mul add.rn add.rz sub.rn mul.rn mul.rz mul.lo mul.hi mul.wide div div.rn div.approx div.approx.ftz rem min max and or xor copysign",
    "T T T": "mad.lo fma.rn fma.rm fma.rz shf.l.wrap shf.r.wrap prmt",
    "T T W": "mad.wide",
    "T u32": "shl shr",
    "T u32 u32": "bfe",
    "T T u32 u32": "bfi",
    "T T pred": "selp",
    "S": "cvt cvt.rn cvt.rzi cvt.rni cvt.rmi cvt.rpi cvt.sat",
}
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
ARITHMETIC = {name: types.split() for types, names in OPERANDS.items() for name in names.split()}
ARITHMETIC.update({f"setp.{comparison}": ["T", "T"] for comparison in COMPARISONS})
# Of wide integers in parts: these read or write the carry.
WITH_CARRY = {"add.cc": 2, "addc": 2, "addc.cc": 2, "sub.cc": 2, "subc": 2, "subc.cc": 2,
              "mad.lo.cc": 3, "madc.lo.cc": 3, "madc.hi.cc": 3, "madc.hi": 3}


def cpp(name: str) -> str:
    """A register, label, parameter or function of PTX as a name of C++."""
    return "v_" + re.sub(r"\W", "_", name.lstrip("%$"))


def split(text: str) -> List[str]:
    """Operands, by the commas outside brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[(]*[}\])])", text)] if text else []


def vector(operand: str) -> List[str]:
    """The registers of {a, b}, or of a alone."""
    return split(operand[1:-1]) if operand.startswith("{") else [operand]


class Instruction(NamedTuple):
    opcode: str
    parts: Dict[str, Optional[str]]  # of the opcode, by the names that its pattern gives them
    operands: List[str]

    @property
    def type(self) -> str:
        return self.parts["type"] or ""

    @property
    def space(self) -> str:
        return (self.parts["space"] or "generic").upper()


class Translator:
    """Of the statements of one function."""

    def __init__(self, module: Module, function: Function):
        self.module, self.function = module, function
        self.arrays = {*module.arrays, *(p.name for p in function.parameters)}
        self.registers: Set[str] = set()

    def statement(self, statement: Statement) -> str:
        try:
            return self.line(statement.text)
        except NotUnderstood as e:
            raise NotUnderstood(f"line {statement.line}, in {self.function.name}: {statement.text}" + (f" ({e})" if str(e) else "")) from None

    def line(self, text: str) -> str:
        if text in ("{", "}"):
            return text
        if text.endswith(":"):
            return cpp(text[:-1]) + ":;"
        if text.startswith("."):
            return self.declaration(text)
        found = re.fullmatch(r"(?:@(!?%[\w$]+) )?([\w.:]+)\s*(.*)", text)
        if not found:
            raise NotUnderstood
        guard, opcode, rest = found.groups()
        code = self.instruction(opcode, rest)
        if not guard:
            return code
        return f"if ({'!' if guard[0] == '!' else ''}{self.register(guard.lstrip('!'))}) {{ {code} }}"

    # -- declarations -----------------------------------------------------------------------------------------------

    def declaration(self, text: str) -> str:
        found = re.fullmatch(rf"\.reg \.({TYPE}) (.+)", text)
        if found:
            return self.declared_registers(*found.groups())
        if text.startswith(".pragma"):
            return ""
        found = re.fullmatch(r"\.local \.align (\d+) \.b8 ([\w$]+)\[(\d+)\]", text)
        if found:
            self.arrays.add(found[2])
            return f"alignas({found[1]}) u8 {cpp(found[2])}[{found[3]}];"
        made = parameters(text)
        if len(made) != 1:
            raise NotUnderstood
        self.arrays.add(made[0].name)
        return f"alignas(16) u8 {cpp(made[0].name)}[{made[0].size}];"

    def declared_registers(self, type_: str, names: str) -> str:
        """%r<3> declares %r0, %r1 and %r2."""
        made: List[str] = []
        for name in split(names):
            many = re.fullmatch(r"(%[\w$]+)<(\d+)>", name)
            made += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]
        self.registers.update(made)
        return f"{type_} {', '.join(map(cpp, made))};"

    # -- operands ---------------------------------------------------------------------------------------------------

    def register(self, operand: str) -> str:
        if operand not in self.registers:
            raise NotUnderstood(f"no register {operand}")
        return cpp(operand)

    def value(self, operand: str, type_: str) -> str:
        """What an operand is, as that type."""
        if operand in self.registers:
            return f"as<{type_}>({cpp(operand)})"
        if operand in SPECIAL:
            return f"as<{type_}>((u32){SPECIAL[operand]})"
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", operand):
            return f"as<{type_}>((u32)0x{operand[2:]})"
        if re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", operand):
            return f"as<{type_}>((u64)0x{operand[2:]})"
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)U?", operand):
            return f"as<{type_}>((u64){int(operand.rstrip('U'), 0) % 2**64}u)"
        if operand == self.module.shared:
            return f"as<{type_}>((u64)0)"  # addresses in shared memory count from its begin
        if operand in self.arrays:
            return f"as<{type_}>((u64){cpp(operand)})"
        raise NotUnderstood(f"operand {operand}")

    def address(self, operand: str) -> str:
        """Of [register + offset] or [array + offset]."""
        found = re.fullmatch(r"\[([^+]+)(?:\+(-?\d+))?\]", operand)
        if not found:
            raise NotUnderstood(f"address {operand}")
        return f"{self.value(found[1], 'u64')} + (s64){found[2] or 0}"

    def put(self, operand: str, value: str) -> str:
        return "" if operand == "_" else f"put({self.register(operand)}, {value});"

    # -- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, opcode: str, rest: str) -> str:
        for pattern, written in WRITTEN_OUT:
            found = re.fullmatch(pattern, opcode)
            if found:
                return written(self, Instruction(opcode, found.groupdict(), split(rest)))
        called = CALL.fullmatch(f"{opcode} {rest}")
        if called:
            return self.call(called.groupdict())
        stem, types = opcode, []
        while stem.rpartition(".")[2] in TYPES:
            stem, _, last = stem.rpartition(".")
            types.insert(0, last)
        return self.arithmetic(stem, types, split(rest))

    def arithmetic(self, stem: str, types: List[str], operands: List[str]) -> str:
        wanted = ARITHMETIC.get(stem) or ["T"] * WITH_CARRY.get(stem, 0)
        conversion = wanted == ["S"]
        if not wanted or len(types) != 1 + conversion or len(operands) != 1 + len(wanted):
            raise NotUnderstood
        own = types[0]
        real = {"T": own, "S": types[-1], "W": own[0] + str(2 * int(own[1:])) if "W" in wanted else ""}
        values = [self.value(operand, real.get(type_, type_)) for operand, type_ in zip(operands[1:], wanted)]
        if stem in WITH_CARRY:
            values.append("carry")
        name = re.sub(r"\.", "_", re.sub(r"\.rn\b", "", stem))
        return self.put(operands[0], f"ptx_{name}<{', '.join(types)}>({', '.join(values)})")

    def call(self, found: Dict[str, Optional[str]]) -> str:
        if found["name"] not in self.module.functions:
            raise NotUnderstood("a function that is not in this file")
        passed = split(found["results"] or "") + split(found["arguments"] or "")
        return f"{cpp(found['name'])}({', '.join(cpp(p.strip()) for p in passed)});"


Written = Callable[[Translator, Instruction], str]


def move(t: Translator, i: Instruction) -> str:
    """Of one value, or between one register and its parts."""
    to, of = i.operands
    if not {to[0], of[0]} & {"{"}:
        return t.put(to, t.value(of, i.type))
    parts = vector(to if to.startswith("{") else of)
    width = int(i.type[1:]) // len(parts)
    if of.startswith("{"):
        return t.put(to, f"as<{i.type}>(" + " | ".join(f"(u64){t.value(part, f'u{width}')} << {k * width}" for k, part in enumerate(parts)) + ")")
    given = " ".join(t.put(part, f"as<u{width}>(whole >> {k * width})") for k, part in enumerate(parts))
    return f"{{ u64 whole = {t.value(of, 'u64')}; {given} }}"


def load(t: Translator, i: Instruction) -> str:
    values = " ".join(t.put(register, f"from<{i.type}>(at, {k})") for k, register in enumerate(vector(i.operands[0])))
    return f"{{ u8 *at = {place(t, i, i.operands[1], 'READ')}; {values} }}"


def store(t: Translator, i: Instruction) -> str:
    values = " ".join(f"to<{i.type}>(at, {k}, {t.value(register, i.type)});" for k, register in enumerate(vector(i.operands[1])))
    return f"{{ u8 *at = {place(t, i, i.operands[0], 'WRITE')}; {values} }}"


def reduction(t: Translator, i: Instruction) -> str:
    """An atomic operation whose former value nobody wants."""
    return f"ptx_atom_{i.parts['operation']}<{i.type}>({place(t, i, i.operands[0], 'ATOMIC')}, {t.value(i.operands[1], i.type)});"


def atomic(t: Translator, i: Instruction) -> str:
    values = "".join(", " + t.value(operand, i.type) for operand in i.operands[2:])
    return t.put(i.operands[0], f"ptx_atom_{i.parts['operation']}<{i.type}>({place(t, i, i.operands[1], 'ATOMIC')}{values})")


def place(t: Translator, i: Instruction, operand: str, access: str) -> str:
    """The host's address of an access, checked."""
    return f'checked<{i.space}, {access}>({t.address(operand)}, {i.parts.get("count") or 1} * sizeof({i.type}), "{i.opcode}")'


def copy(t: Translator, i: Instruction) -> str:
    """From global to shared memory, done at some time before the thread waits for it; with zeros beyond what is given."""
    to, of, size = i.operands[:3]
    given = t.value(i.operands[3] if len(i.operands) > 3 else size, "u32")
    return f'copy_begins({t.address(to)}, {t.address(of)}, {t.value(size, "u32")}, {given}, "{i.opcode}");'


def to_or_from_shared(t: Translator, i: Instruction) -> str:
    """Of an address in a space its generic one, or back: these differ for shared memory alone."""
    address = t.value(i.operands[1], "u64")
    if i.space == "SHARED":
        address += f" {'-' if i.parts['back'] else '+'} (u64)ac_shared_memory"
    return t.put(i.operands[0], address)


def jump(t: Translator, i: Instruction) -> str:
    return f"goto {cpp(i.operands[0])};"


def barrier(t: Translator, i: Instruction) -> str:
    code = {("bar.sync", "0"): "block_barrier();", ("bar.warp.sync", "-1"): "warp_barrier();"}.get((i.opcode, ", ".join(i.operands)))
    if not code:
        raise NotUnderstood("only of all threads")
    return code


def shuffle(t: Translator, i: Instruction) -> str:
    to, _, valid = i.operands[0].partition("|")
    given = ", ".join(t.value(operand, "u32") for operand in i.operands[1:])
    return t.put(to, f"shuffled({given})") + (t.put(valid, "true") if valid else "")


def vote(t: Translator, i: Instruction) -> str:
    return t.put(i.operands[0], f"voted({t.value(i.operands[1], 'pred')}, {t.value(i.operands[2], 'u32')})")


def tile_load(t: Translator, i: Instruction) -> str:
    to, at, stride = i.operands
    values = " ".join(t.put(register, f"own[{k}]") for k, register in enumerate(vector(to)))
    type_ = "f32" if i.opcode.endswith("f32") else "u32"
    return f'{{ {type_} own[8]; tile_load<{i.space}>(own, {t.address(at)}, {t.value(stride, "u32")}, "{i.opcode}"); {values} }}'


def tile_store(t: Translator, i: Instruction) -> str:
    at, of, stride = i.operands
    values = ", ".join(t.value(register, "f32") for register in vector(of))
    return f'{{ f32 own[] = {{{values}}}; tile_store<{i.space}>(own, {t.address(at)}, {t.value(stride, "u32")}, "{i.opcode}"); }}'


def tile_product(t: Translator, i: Instruction) -> str:
    arrays = ""
    for name, operand, type_ in zip("abc", i.operands[1:], ("u32", "u32", "f32")):
        arrays += f"{type_} {name}[] = {{{', '.join(t.value(register, type_) for register in vector(operand))}}}; "
    values = " ".join(t.put(register, f"c[{k}]") for k, register in enumerate(vector(i.operands[0])))
    left, right = ("true" if across in i.opcode else "false" for across in ("aligned.col.", ".row.m16"))
    how = f"{'bf16' if 'bf16' in i.opcode else 'f16'}, {left}, {right}"
    return f"{{ {arrays}tile_product<{how}>(a, b, c); {values} }}"


def matrices_load(t: Translator, i: Instruction) -> str:
    values = " ".join(t.put(register, f"own[{k}]") for k, register in enumerate(vector(i.operands[0])))
    return f'{{ u32 own[4]; matrices_load(own, {t.address(i.operands[1])}, {"true" if ".trans" in i.opcode else "false"}, "{i.opcode}"); {values} }}'


def fragment_product(t: Translator, i: Instruction) -> str:
    arrays = ""
    for name, operand, type_ in zip("abc", i.operands[1:], ("u32", "u32", "f32")):
        arrays += f"{type_} {name}[] = {{{', '.join(t.value(register, type_) for register in vector(operand))}}}; "
    values = " ".join(t.put(register, f"c[{k}]") for k, register in enumerate(vector(i.operands[0])))
    return f"{{ {arrays}fragment_product<{i.parts['of'] or 'f16'}>(a, b, c); {values} }}"


def two_rounded(t: Translator, i: Instruction) -> str:
    """To 16 bits each; the first one named is the upper half."""
    return t.put(i.operands[0], f"two_rounded<{i.parts['to']}>({', '.join(t.value(operand, 'f32') for operand in i.operands[1:])})")


SPACES = r"(\.(?P<space>global|shared|local|param))?"
TILE = r"\.m16n16k16"
WRITTEN_OUT: List[Tuple[str, Written]] = [
    (rf"mov\.(?P<type>{TYPE})", move),
    (rf"ld(\.volatile)?{SPACES}(\.nc)?(\.v(?P<count>[24]))?\.(?P<type>{TYPE})", load),
    (rf"st(\.volatile)?{SPACES}(\.v(?P<count>[24]))?\.(?P<type>{TYPE})", store),
    (rf"atom(\.relaxed)?(\.(?P<space>global|shared))?\.(?P<operation>add|cas)\.(?P<type>{TYPE})", atomic),
    (rf"red(\.relaxed)?(\.(?P<space>global|shared))?\.(?P<operation>add)\.(?P<type>{TYPE})", reduction),
    (r"cp\.async\.c[ag]\.shared\.global", copy),
    (r"cp\.async\.commit_group", lambda t, i: "copies_grouped();"),
    (r"cp\.async\.wait_group", lambda t, i: f"copies_done({t.value(i.operands[0], 'u32')});"),
    (r"cvta(?P<back>\.to)?\.(?P<space>global|shared|local|param)\.u64", to_or_from_shared),
    (r"bra(\.uni)?", jump),
    (r"ret", lambda t, i: "return;"),
    (r"membar\.(cta|gl|sys)", lambda t, i: ""),  # threads take turns
    (r"bar\.sync|bar\.warp\.sync", barrier),
    (r"shfl\.sync\.bfly\.b32", shuffle),
    (r"vote\.sync\.ballot\.b32", vote),
    (rf"wmma\.load\.(a|b)\.sync\.aligned\.(row|col){TILE}{SPACES}\.(f16|bf16)", tile_load),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared\.b16", matrices_load),
    (r"mma\.sync\.aligned\.(m16n8k16\.row\.col\.f32\.(?P<of>f16|bf16)\.(?P=of)\.f32|m16n8k8\.row\.col\.f32\.f16\.f16\.f32)", fragment_product),
    (r"cvt\.rn\.(?P<to>f16|bf16)x2\.f32", two_rounded),
    (rf"wmma\.load\.c\.sync\.aligned\.row{TILE}{SPACES}\.f32", tile_load),
    (rf"wmma\.store\.d\.sync\.aligned\.row{TILE}{SPACES}\.f32", tile_store),
    (rf"wmma\.mma\.sync\.aligned\.(row|col)\.(row|col){TILE}\.f32(\.f32|\.bf16\.bf16\.f32)", tile_product),
]
