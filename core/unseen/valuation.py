"""What each sample is worth to a forest: Data-OOB.

The value of a sample is how well the trees that have not learned it predict its label: a sample whose label is wrong
has a low value, because its neighbours say something else ("Data-OOB: Out-of-bag Estimate as a Simple and Efficient
Data Value", Kwon, Zou 2023). Where theirs counts the trees that predict the right class, ours is the mean of the
probabilities that they give to it, which takes one pass over the samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oubli.core.array_types import Reals
from oubli.core.base import Keepable
from oubli.core.data.values import Task
from oubli.core.unseen.answers import label_columns, out_of_bag_answers


@dataclass(frozen=True, eq=False)
class DataValues:
    """The worth of samples.

    Attributes
    ----------
    ids : sequence of str, length n
    values : float64[n]
        The probability of the sample's class by trees that have not learned it; of a regression minus the square of
        their error.

    Examples
    --------
    >>> values = DataValues(ids=["a", "b", "c"], values=np.array([0.9, 0.1, 0.7]))
    >>> values.lowest(2)
    [('b', 0.1), ('c', 0.7)]
    """

    ids: Sequence[str]
    values: Reals

    def lowest(self, top: int = 10) -> list[tuple[str, float]]:
        """The samples of the lowest value, whose labels are most likely to be wrong, lowest first.

        Examples
        --------
        >>> DataValues(ids=["a", "b", "c"], values=np.array([0.9, 0.1, 0.7])).lowest(1)
        [('b', 0.1)]
        """
        order = np.argsort(self.values, kind="stable")[: max(int(top), 0)]
        return [(self.ids[i], float(self.values[i])) for i in order.tolist()]


def data_values(model: Keepable) -> DataValues:
    """Value the samples of a forest that some of its trees have not learned; in a read of the model.

    Raises
    ------
    InputError
        When the model has no such trees.
    """
    (slots, answers), store = out_of_bag_answers(model), model.samples_
    if model.task is Task.CLASSIFICATION:
        values = answers[np.arange(len(slots)), label_columns(model, slots)]
    else:
        values = -((store.y[slots] - answers) ** 2)
    return DataValues(list(store.names(slots)), values)
