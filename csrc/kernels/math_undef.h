/* Forgets one real type, so that scalar.h and rows.h can be included for the next. */
#undef R
#undef S
#undef M
#undef M_EXP
#undef M_LOG
#undef M_TANH
#undef M_ERF
#undef M_SQRT
#undef M_SIN
#undef M_COS
#undef M_POW
#undef M_FMOD
#undef M_FLOOR
#undef M_CEIL
#undef M_RINT
#undef M_TRUNC
