"""How the package is compiled: entries that Python calls, and helpers that become part of them.

``@kernel`` marks an entry.  It is compiled at its first call, without the interpreter's lock and without fastmath, and
kept on disk.  Numba itself would look at the entry's own file to see whether the compiled code is still good; here the
key covers the source of the whole package, so that an edit of a helper is noticed too.

``@helper`` marks a function that kernels call.  It is typed and translated to LLVM's intermediate code once, whoever
calls it, and becomes machine code only as part of a kernel.  Left to numba, every helper would be optimized, assembled
and wrapped for callers in C by itself as well, once more for each set of options it is called under, and none of that
would ever run: it took half of the time of compiling.

Loops are not unrolled.  Those that need it are written out in vectors already (``simd``, ``elimination``).  Unrolled
once more by LLVM they took a third of its time, and ran slower, because the rows of a learner are tens of numbers long.

Both reach into numba, so they are done for the releases that they were tested with (``TESTED``); under any other,
everything is compiled numba's own way: slower, with the same results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm  # type: ignore[import-untyped]
from numba import _dynfunc, njit  # type: ignore[attr-defined]
from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.core.types import Dispatcher, unliteral
from numba.extending import register_jitable

__all__ = ["helper", "inlined", "is_kernel", "kernel", "source_digest"]

#: releases of numba, by their first two numbers, whose internals the classes below were tested with
TESTED = ("0.68",)


def source_digest(folder: Path = Path(__file__).parent) -> str:
    """A digest of all source files of the package."""
    content = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()


_DIGEST = source_digest()


class _CacheFiles(IndexDataCacheFile):
    """The files of one function's compiled code; what cannot be read is compiled again, and then replaced.

    Numba unpickles a file before it looks whether it belongs to this version of the function.  A file that another
    version of Sidelight left names types by where they were defined there, and a power cut may leave an empty one.
    """

    def _load_index(self) -> Any:
        try:
            return super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # unpickling may raise anything
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)  # type: ignore[no-untyped-call]
        except OSError:
            raise
        except Exception as error:  # as above; numba takes this for a file that has been removed
            raise OSError(f"{name} cannot be read") from error


class _PackageCache(FunctionCache):
    """Numba's cache of one function, under a key that covers the package's source."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        files = self._cache_file
        self._cache_file = _CacheFiles(self._cache_path, self._impl.filename_base, files._source_stamp)  # type: ignore[no-untyped-call]

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _DIGEST)  # type: ignore[no-untyped-call]


# numba's own stubs leave out the options that drop wrappers, and what the environment sets
_njit: Any = njit
_config: Any = config


class _KernelLibrary(JITCodeLibrary):
    """A kernel with all helpers that it links, optimized together."""

    def _optimize_final_module(self) -> None:
        """Numba's two rounds: one that inlines, so that counting of references can be pruned, and the full one.

        The full one differs from numba's by ``loop_unrolling`` alone.
        """
        managers: Any = self._codegen._module_pass_manager
        inline, inliner = managers(loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap")
        inline.run(self._final_module, inliner)
        options = llvm.create_pipeline_tuning_options()
        options.speed_level = int(_config.OPT)
        options.loop_vectorization = bool(_config.LOOP_VECTORIZE)
        options.slp_vectorization = bool(_config.SLP_VECTORIZE)
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        passes = builder.getModulePassManager()
        passes.add_refprune_pass()
        passes.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _KernelLowering(NativeLowering):
    """Numba's own pass, into a library that is optimized as above."""

    _name = "kernel_lowering"
    library: type[JITCodeLibrary] = _KernelLibrary

    def run_pass(self, state: Any) -> bool:
        """Compile the kernel and the wrapper by which Python calls it."""
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))  # type: ignore[no-untyped-call]


class _HelperLibrary(JITCodeLibrary):
    """Intermediate code that waits to be linked into a kernel, which optimizes and assembles all of it at once."""

    def _optimize_final_module(self) -> None:
        """Nothing: the kernel that links this code optimizes it."""

    def _finalize_final_module(self) -> None:
        """Close the library without handing it to the assembler."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _HelperLowering(_KernelLowering):
    """Translate a helper into intermediate code that kernels can link, and nothing that Python could call."""

    _name = "helper_lowering"
    library = _HelperLibrary

    def run_pass(self, state: Any) -> bool:
        """The same pass, told not to compile; then the function is made known to those that will call it."""
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # stands for the function in numba's tables; it has no address, as with every function without a wrapper
        name = lowered.fndesc.qualname.split(".")[-1]
        token = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "helper", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(token, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=token)
        return True


class _KernelCompiler(CompilerBase):
    """Numba's pipeline with the last step exchanged."""

    lowering: type[NativeLowering] = _KernelLowering

    def define_pipelines(self) -> list[Any]:
        """One pipeline: a function that cannot be typed is an error."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        manager.passes = [(self.lowering if step is NativeLowering else step, text) for step, text in manager.passes]
        manager.finalize()
        return [manager]


class _HelperCompiler(_KernelCompiler):
    """Compiles a helper, which becomes machine code only inside the kernels that call it."""

    lowering = _HelperLowering


def _tested() -> bool:
    """Whether this release of numba is one whose internals are known."""
    return ".".join(numba.__version__.split(".")[:2]) in TESTED


def kernel(function: Callable[..., Any]) -> Any:
    """An entry: compiled at its first call for the types it is given, and kept on disk."""
    compiler = {"pipeline_class": _KernelCompiler} if _tested() else {}
    dispatcher = _njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **compiler)(function)
    dispatcher._cache = _PackageCache(function)
    return dispatcher


def is_kernel(thing: object) -> bool:
    """Whether this was made by ``kernel``."""
    return isinstance(getattr(thing, "_cache", None), _PackageCache)


def _part(function: Any, forceinline: bool) -> Any:
    """The function itself, marked so that compiled code which names it calls its compiled form."""
    if not _tested():
        return register_jitable(error_model="numpy", forceinline=forceinline)(function)
    dispatcher = _njit(
        nogil=True,
        error_model="numpy",
        forceinline=forceinline,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        pipeline_class=_HelperCompiler,
    )(function)
    template = dispatcher.get_call_template
    # a constant among the arguments is an integer like any other, not a type for which to compile once more
    dispatcher.get_call_template = lambda args, kws: template(tuple(map(unliteral, args)), kws)
    # numba's type holds its dispatcher by a weak reference
    function._compiled, function._numba_type_ = dispatcher, Dispatcher(dispatcher)
    return function


def helper(function: Callable[..., Any]) -> Any:
    """Part of every kernel that calls it; from Python it is the plain function."""
    return _part(function, forceinline=False)


def inlined(function: Callable[..., Any]) -> Any:
    """A helper that is always inlined: passing its many arguments would cost more than its work."""
    return _part(function, forceinline=True)
