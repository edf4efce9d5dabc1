def save_image(*args, **kwargs):
    raise NotImplementedError("the stand-in has the name only")


make_grid = save_image
