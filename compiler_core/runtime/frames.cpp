/* Frame evaluation by PEP 523: while a region is active in a thread, calls of Python functions are put to a callback.

In: `run(ask, function, args, kwargs)`: a region, in which function(*args, **kwargs) is called. For the frame of every
Python function that the thread begins in it, `judge(code)` says once for each code: PLAIN, OFF (the region is not
active within) or ASK. Asked, `ask(function, values of the parameters)` answers None (PLAIN; a code of which that was the
answer ENOUGH times on end is asked of no more), True (PLAIN this time), False (OFF), (result,), or an exception to
raise: the frame is then not run at all.
Invariants: outside of regions Python's own evaluation is installed; the callback runs outside of them. Nothing is asked
while a tracer or profiler is set, of frames that are not a function's call (generators going on, class bodies, exec),
or DEEPEST frames down. Where somebody else has installed an evaluation, regions are calls.
Method: a frame that is not run must still be taken off the thread's stack of frames. In 3.11 the caller does so. Since
3.12 the evaluation does, by functions that CPython does not export: so it is given the frame with an exception to
throw there, which no handler covers before the first instruction.
Source: PEP 523; Python/ceval.c, Include/internal/pycore_frame.h of CPython 3.11 to 3.13.
*/
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_frame.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000 || defined(Py_GIL_DISABLED)
#error "frames are known of CPython 3.11 to 3.13 with the lock"
#endif

namespace {

enum : Py_ssize_t { FAILED = -1, UNKNOWN = 0, PLAIN = 1, OFF = 2, ASK = 3 };  // above: ASK, and how often in vain
const Py_ssize_t ENOUGH = 64;
const int DEEPEST = 100;  // frames evaluated here, one inside the other: each takes from the thread's C stack

PyObject *judge = nullptr;
Py_ssize_t place = -1;  // of the verdict among what extensions keep with a code
int regions = 0;        // active ones, of all threads; the lock is held wherever this is read
thread_local int own = 0;  // active ones of this thread
thread_local int depth = 0;
thread_local PyObject *asked = nullptr;  // the callback of this thread's region

PyObject *evaluate(PyThreadState *thread, _PyInterpreterFrame *frame, int throwing);

bool install(bool on) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (now != evaluate && now != _PyEval_EvalFrameDefault) return false;  // somebody else's
    if ((now == evaluate) != on) _PyInterpreterState_SetEvalFrameFunc(interpreter, on ? evaluate : _PyEval_EvalFrameDefault);
    return true;
}

/* No region is active in this thread while it lives. */
struct Outside {
    PyObject *callback = asked;
    bool quiet = regions == own;  // no other thread wants frames: calls may be as fast as ever
    Outside() {
        asked = nullptr;
        if (quiet) install(false);
    }
    ~Outside() {
        asked = callback;
        if (quiet) install(true);
    }
};

Py_ssize_t keep(PyObject *code, Py_ssize_t verdict) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Code_SetExtra(code, place, (void *)verdict) < 0 ? (Py_ssize_t)FAILED : verdict;
#else
    return _PyCode_SetExtra(code, place, (void *)verdict) < 0 ? (Py_ssize_t)FAILED : verdict;
#endif
}

Py_ssize_t verdict_of(PyObject *code) {
    void *kept = nullptr;
#if PY_VERSION_HEX >= 0x030C0000
    if (PyUnstable_Code_GetExtra(code, place, &kept) < 0) return FAILED;
#else
    if (_PyCode_GetExtra(code, place, &kept) < 0) return FAILED;
#endif
    if (kept != nullptr) return (Py_ssize_t)kept;
    PyObject *answer;
    {
        Outside outside;
        answer = PyObject_CallOneArg(judge, code);
    }
    if (answer == nullptr) return FAILED;
    Py_ssize_t verdict = PyLong_AsSsize_t(answer);
    Py_DECREF(answer);
    return keep(code, verdict < PLAIN || verdict > ASK ? (Py_ssize_t)PLAIN : verdict);
}

/* The function whose call `frame` is, with its arguments in place; NULL of other frames. */
PyObject *function_of(_PyInterpreterFrame *frame) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *function = frame->f_funcobj, *code = frame->f_executable;
#elif PY_VERSION_HEX >= 0x030C0000
    PyObject *function = frame->f_funcobj, *code = (PyObject *)frame->f_code;
#else
    PyObject *function = (PyObject *)frame->f_func, *code = (PyObject *)frame->f_code;
#endif
    const int others = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
    if (frame->f_locals != nullptr || function == nullptr || !PyFunction_Check(function)) return nullptr;
    if (!PyCode_Check(code) || PyFunction_GET_CODE(function) != code) return nullptr;
    int flags = ((PyCodeObject *)code)->co_flags;
    bool is_call = (flags & CO_OPTIMIZED) && (flags & CO_NEWLOCALS) && !(flags & others);
    return is_call ? function : nullptr;
}

/* What the callback answers; NULL with an exception set if it failed. */
PyObject *answer_of(_PyInterpreterFrame *frame, PyObject *function) {
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
    int collected = !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
    Py_ssize_t count = code->co_argcount + code->co_kwonlyargcount + collected;
    PyObject *values = PyTuple_New(count);
    if (values == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = frame->localsplus[i];
        if (value == nullptr) {
            Py_DECREF(values);
            Py_RETURN_NONE;
        }
        PyTuple_SET_ITEM(values, i, Py_NewRef(value));
    }
    PyObject *answer, *callback = Py_NewRef(asked);
    Py_INCREF(function);
    {
        Outside outside;
        answer = PyObject_CallFunctionObjArgs(callback, function, values, nullptr);
    }
    Py_DECREF(function);
    Py_DECREF(callback);
    Py_DECREF(values);
    return answer;
}

/* `frame` is not run. The exception that is set, if any, stays. */
void drop(PyThreadState *thread, _PyInterpreterFrame *frame) {
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();
    PyThreadState_EnterTracing(thread);
    PyErr_SetNone(PyExc_SystemError);
    PyObject *nothing = _PyEval_EvalFrameDefault(thread, frame, 1);
    Py_XDECREF(nothing);
    PyErr_Clear();
    PyThreadState_LeaveTracing(thread);
    PyErr_SetRaisedException(error);
#else
    (void)thread;
    (void)frame;
#endif
}

PyObject *plain(PyThreadState *thread, _PyInterpreterFrame *frame) {
    depth++;
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, 0);
    depth--;
    return result;
}

PyObject *off(PyThreadState *thread, _PyInterpreterFrame *frame) {
    Outside outside;
    return _PyEval_EvalFrameDefault(thread, frame, 0);
}

PyObject *evaluate(PyThreadState *thread, _PyInterpreterFrame *frame, int throwing) {
    if (asked == nullptr || throwing || thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr)
        return _PyEval_EvalFrameDefault(thread, frame, throwing);
    if (depth >= DEEPEST) return off(thread, frame);
    PyObject *function = function_of(frame);
    if (function == nullptr) return plain(thread, frame);
    PyObject *code = PyFunction_GET_CODE(function);
    Py_ssize_t verdict = verdict_of(code);
    if (verdict == PLAIN) return plain(thread, frame);
    if (verdict == OFF) return off(thread, frame);
    PyObject *answer = verdict == FAILED ? nullptr : answer_of(frame, function);
    if (answer != nullptr && answer != Py_True) {
        Py_ssize_t next = answer != Py_None ? (Py_ssize_t)ASK : verdict - ASK < ENOUGH ? verdict + 1 : (Py_ssize_t)PLAIN;
        if (next != verdict && keep(code, next) == FAILED) Py_CLEAR(answer);
    }
    if (answer == Py_None || answer == Py_True || answer == Py_False) {
        bool is_off = answer == Py_False;
        Py_DECREF(answer);
        return is_off ? off(thread, frame) : plain(thread, frame);
    }
    drop(thread, frame);
    if (answer == nullptr) return nullptr;
    PyObject *result = nullptr;
    if (PyTuple_CheckExact(answer) && PyTuple_GET_SIZE(answer) == 1) {
        result = Py_NewRef(PyTuple_GET_ITEM(answer, 0));
        Py_DECREF(answer);
    } else if (PyExceptionInstance_Check(answer)) {
        PyErr_Restore(Py_NewRef(Py_TYPE(answer)), answer, PyException_GetTraceback(answer));
    } else {
        Py_DECREF(answer);
        PyErr_SetString(PyExc_SystemError, "what was asked of a frame has no such answer");
    }
    return result;
}

PyObject *run(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 4 || !PyTuple_Check(given[2]) || !PyDict_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "run(ask, function, args, kwargs)");
        return nullptr;
    }
    if (judge == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "prepare(judge) comes before run()");
        return nullptr;
    }
    PyThreadState *thread = PyThreadState_Get();
    bool traced = thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr;
    if (traced || !install(true)) return PyObject_Call(given[1], given[2], given[3]);
    PyObject *before = asked;
    asked = Py_NewRef(given[0]);
    regions++, own++;
    PyObject *result = PyObject_Call(given[1], given[2], given[3]);
    regions--, own--;
    Py_XSETREF(asked, before);
    if (asked == nullptr && regions == own) install(false);
    return result;
}

PyObject *is_free(PyObject *, PyObject *) {
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    return PyBool_FromLong(now == evaluate || now == _PyEval_EvalFrameDefault);
}

PyObject *prepare(PyObject *, PyObject *callback) {
    Py_XSETREF(judge, Py_NewRef(callback));
    Py_RETURN_NONE;
}

PyObject *forked(PyObject *, PyObject *) {  // the other threads are not there any more
    regions = own;
    if (regions == 0) install(false);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "run(ask, function, args, kwargs): a region."},
    {"is_free", is_free, METH_NOARGS, "is_free(): whether nobody else has installed an evaluation."},
    {"prepare", prepare, METH_O, "prepare(judge): who says what is done with a code."},
    {"forked", forked, METH_NOARGS, "forked(): to be called in the child of a fork."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "distcompile_frames", nullptr, -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_distcompile_frames(void) {
#if PY_VERSION_HEX >= 0x030C0000
    place = PyUnstable_Eval_RequestCodeExtraIndex(nullptr);
#else
    place = _PyEval_RequestCodeExtraIndex(nullptr);
#endif
    if (place < 0) {
        PyErr_SetString(PyExc_ImportError, "no room for a verdict in code objects");
        return nullptr;
    }
    return PyModule_Create(&definition);
}
