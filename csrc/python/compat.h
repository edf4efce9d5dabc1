/* What newer Python headers have and older ones lack (3.9 is the oldest supported). */
#ifndef AC_PYTHON_COMPAT_H
#define AC_PYTHON_COMPAT_H

#if PY_VERSION_HEX < 0x030A0000
static inline PyObject *Py_NewRef(PyObject *o) {
    Py_INCREF(o);
    return o;
}
static inline int PyModule_AddObjectRef(PyObject *module, const char *name, PyObject *value) {
    Py_XINCREF(value);
    int failed = value ? PyModule_AddObject(module, name, value) : -1;
    if (failed) Py_XDECREF(value);
    return failed;
}
#endif

#endif
