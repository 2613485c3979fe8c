"""Recording a machine into a folder that `Host` can replay, without what names it or its user."""
