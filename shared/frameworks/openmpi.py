"""The variables by which mpirun of Open MPI finds the hosts and reaches them.  Pure.

Up to version 4 mpirun reads the names that begin with OMPI_MCA.  From version 5 on it is a program of PRRTE, which
reads only those that begin with PRTE_MCA: without them every rank runs beside mpirun.  A launcher gets both, because
the version is known in its image alone.
"""

from collections.abc import Mapping

HOSTS = "OMPI_MCA_orte_default_hostfile"
ARGS = "OMPI_MCA_plm_rsh_args"
"""Arguments of ssh."""
KEEP = "OMPI_MCA_orte_keep_fqdn_hostnames"
"""Without it mpirun cuts the hosts' names at their first dot."""
SLOTS = "OMPI_MCA_orte_set_default_slots"
FLAT = "OMPI_MCA_plm_rsh_no_tree_spawn"
"""With 1 mpirun reaches every worker from the launcher; otherwise it reaches some of more than 64 from others."""
AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
"""The program in the place of ssh, which Muster does not set."""

NEWER: Mapping[str, str] = {
    HOSTS: "PRTE_MCA_prte_default_hostfile",
    ARGS: "PRTE_MCA_plm_ssh_args",
    KEEP: "PRTE_MCA_prte_keep_fqdn_hostnames",
    SLOTS: "PRTE_MCA_prte_set_default_slots",
    FLAT: "PRTE_MCA_plm_ssh_no_tree_spawn",
}

RESOLVING = {"PRTE_MCA_prte_do_not_resolve": "0"}
"""Has version 5 know the launcher by its whole name, if it is one of the hosts; otherwise mpirun reaches it by ssh."""


def for_all_versions(variables: Mapping[str, str]) -> dict[str, str]:
    """These variables, and each under the name of version 5 too."""
    return {**variables, **{NEWER[name]: value for name, value in variables.items()}}
