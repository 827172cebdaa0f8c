import secrets

import numpy as np

from pass_core import Protector, audit

records = np.arange(3200)  # forty speakers say four digits; the last 1600 records are new
speaker, labels = records // 4 % 40, {"gender": records // 4 % 2, "digit": records % 4}
X = np.random.default_rng(0).normal(size=(3200, 16)) + 4 * np.eye(16)[labels["gender"]] + 4 * np.eye(16)[8 + labels["digit"]]
train, new = ({name: values[part] for name, values in labels.items()} for part in (slice(1600), slice(1600, None)))

protector = Protector(private=["gender"], useful=["digit"], donors=128, forbid="same_person", settings={"epsilon": 0.5})
protector.fit(X[:1600], train, persons=speaker[:1600])
released = protector.transform(X[1600:], persons=speaker[1600:], key=secrets.token_bytes(32))  # real donors' records
print(audit(protector, X[1600:], new, persons=speaker[1600:]))  # attacks a release: gender is hidden, digit is kept
