"""A launcher that is added in one folder, to show what another framework needs: nothing outside of it is changed."""
