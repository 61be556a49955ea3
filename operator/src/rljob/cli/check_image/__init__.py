"""`rljob check-image`: run the runtime's check of an image in a pod of the cluster, and delete the pod."""
