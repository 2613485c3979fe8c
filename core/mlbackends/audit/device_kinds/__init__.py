"""The limits of device kinds as data: KIND.toml, read into `mlbackends.model.device_kinds.DeviceKind`.

An entry point of the group "mlbackends.device_kinds" adds a kind. It names a module with KIND, DEVICES,
PROBES, LIMITS, FEATURES and SHOWN, with the records of that file; its docstring is the title.
"""
