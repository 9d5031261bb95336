"""Facts of Kafka's releases, and what nodes report about theirs.

Begin with:
- `facts.Release`: a release such as 3.4.1; releases sort by their numbers
- `facts.ReleaseFacts`: all facts of the catalogue about one release
- `facts.Catalogue`: the supported releases and their facts
- `facts.VersionRange`: the levels of a feature that a release supports
- `documents.catalogue.get_catalogue`: reads the catalogue
- `reported.identify_release`: the release by which a reported version is evaluated
- `jars.cache.ReleaseCache`: the jars of the releases on this machine
- `jvm.jvm.run_jvm`: starts a Java process that Python calls
"""
