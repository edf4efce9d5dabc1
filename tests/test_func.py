"""ampc.func: derivatives of functions keep the history of what else took part, as torch.func's do."""

import pytest

import ampc
from ampc import func


def weight(value=2.0):
    return ampc.tensor([value], requires_grad=True)


def slope(of):
    """The gradient of what ``of`` makes of a parameter, through ampc.func and beside it."""
    w = weight()
    (of(w).sum() + w.sum()).backward()
    return w.grad.tolist()


def test_a_parameter_that_a_function_uses_gets_its_gradient():
    one = ampc.ones(1)
    assert slope(lambda w: func.grad(lambda a: (a * a * w).sum())(one)) == [3]
    assert slope(lambda w: func.grad_and_value(lambda a: (a * w * w).sum())(one)[1]) == [5]
    assert slope(lambda w: func.grad(lambda a: ((a * a).sum(), a * w * 7), has_aux=True)(one)[1]) == [8]
    assert slope(lambda w: func.vjp(lambda a: a * w, one)[0]) == [2]
    assert slope(lambda w: func.vjp(lambda a: a * w, one)[1](one)[0]) == [2]
    assert slope(lambda w: func.vjp(lambda a: a * 5, one)[1](w)[0]) == [6]
    assert slope(lambda w: func.jvp(lambda a: a * a * w, (one,), (one,))[1]) == [3]
    assert slope(lambda w: func.jacrev(lambda a: a ** 3 * w)(one)) == [4]
    assert slope(lambda w: func.hessian(lambda a: (a ** 3 * w).sum())(one)) == [7]


def test_derivatives_within_derivatives():
    one = ampc.tensor(1.0)
    sine = -float(ampc.sin(one))
    for inner in (lambda x: func.vjp(ampc.sin, x)[1](one)[0], lambda x: func.jvp(ampc.sin, (x,), (one,))[1], func.grad(ampc.sin),
                  func.jacrev(ampc.sin)):
        assert float(func.grad(inner)(one)) == pytest.approx(sine)
    assert float(func.grad(func.hessian(lambda y: y ** 3))(one)) == pytest.approx(6)


def test_a_function_returns_more_than_what_is_differentiated():
    two = ampc.full((2,), 2.0)

    def f(a):
        return a * a, {"more": a + 1}

    value, slope_of, aux = func.jvp(f, (two,), (ampc.ones(2),), has_aux=True)
    assert value.tolist() == [4, 4] and slope_of.tolist() == [4, 4] and aux["more"].tolist() == [3, 3]
    matrix, aux = func.jacrev(f, has_aux=True)(two)
    assert matrix.tolist() == [[4, 0], [0, 4]] and aux["more"].tolist() == [3, 3] and not aux["more"].requires_grad
    (matrix, other), aux = func.jacfwd(lambda a, b: (a * b, a), (0, 1), has_aux=True)(two, 3 * two)
    assert matrix.tolist() == [[6, 0], [0, 6]] and other.tolist() == [[2, 0], [0, 2]] and aux.tolist() == [2, 2]
    assert slope(lambda w: func.jvp(lambda a: (a * a, a * w * 7), (ampc.ones(1),), (ampc.ones(1),), has_aux=True)[2]) == [8]
    for call in (lambda: func.jvp(lambda a: a, (two,), (two,), has_aux=True), lambda: func.jacrev(lambda a: a, has_aux=True)(two)):
        with pytest.raises(RuntimeError, match="must return .value, more."):
            call()


def test_nothing_is_recorded_without_need():
    one = ampc.ones(1)
    grads, (value, aux) = func.grad_and_value(lambda a: ((a * a).sum(), a * 2), has_aux=True)(one)
    value2, back = func.vjp(lambda a: a * a, one)
    each = [grads, value, aux, value2, *back(one), *func.jvp(lambda a: a * a, (one,), (one,)), func.jacrev(ampc.exp)(one)]
    w = weight()
    with ampc.no_grad():
        each.append(func.grad(lambda a: (a * a * w).sum())(one))
    assert not any(t.requires_grad for t in each)


def test_what_does_not_depend_on_its_argument_has_the_gradient_zero():
    assert func.grad(lambda a: ampc.tensor(1.0))(ampc.ones(2)).tolist() == [0, 0]
    assert func.vjp(lambda a: ampc.ones(2), ampc.ones(2))[1](ampc.ones(2))[0].tolist() == [0, 0]


def test_a_graph_of_many_ways_is_gone_through_once():
    def doubled(a):
        for _ in range(60):  # 2 ** 60 ways
            a = a + a * 1
        return a.sum()

    assert func.grad(doubled)(ampc.ones(1)).item() == 2.0 ** 60


def test_nodes_are_equal_where_they_are_the_same():
    y = ampc.ones(1, requires_grad=True) * 2
    assert y.grad_fn == y.grad_fn and y.grad_fn != (y * 1).grad_fn and len({y.grad_fn, y.grad_fn}) == 1
