"""What every client of an engine must hold: one list of checks, run over each client.

`checks.CHECKS` need nothing but a running engine and run against real ones too; `faults.FAULT_CHECKS` and
`wire.WIRE_CHECKS` need the fake engine, whose log and faults they read.
"""
