import secrets

import numpy as np

from pass_core import Protector, audit

rng = np.random.default_rng(0)
speakers = rng.integers(40, size=3000)
labels = {"gender": speakers % 2, "digit": rng.integers(4, size=3000)}  # one attribute to hide, one to keep
X = rng.normal(size=(3000, 16)) + 4 * np.eye(16)[labels["gender"]] + 4 * np.eye(16)[8 + labels["digit"]]
train, test = ({name: values[rows] for name, values in labels.items()} for rows in (slice(2000), slice(2000, None)))

protector = Protector(private=["gender"], useful=["digit"], donors=256, forbid="same_person", settings={"epsilon": 0.2})
protector.fit(X[:2000], train, persons=speakers[:2000])
released = protector.transform(X[2000:], persons=speakers[2000:], key=secrets.token_bytes(32))  # real donors' records
print(audit(protector, X[2000:], test, persons=speakers[2000:]))  # attacks a release: is gender hidden, is digit kept?
